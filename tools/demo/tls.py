"""A CA and a server certificate for the demo's hosts, made with the openssl command line."""
import os
import ssl
import subprocess

HOSTS = ("gateway.ai.cloudflare.com", "github.com")


def openssl(*arguments, data=None):
    subprocess.run(["openssl", *arguments], input=data, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def make_certificates(folder, hosts=HOSTS, name="demo"):
    """Writes FOLDER/NAME-ca.pem, NAME.pem (leaf and key) once; returns their paths."""
    ca, ca_key = f"{folder}/{name}-ca.pem", f"{folder}/{name}-ca.key"
    leaf, key, request = f"{folder}/{name}.pem", f"{folder}/{name}.key", f"{folder}/{name}.csr"
    if os.path.exists(leaf) and os.path.exists(ca):
        return ca, leaf
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", "3650",
            "-subj", "/CN=Paddock demo CA", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("req", *curve, "-keyout", key, "-out", request, "-subj", "/CN=Paddock demo")
    extensions = f"{folder}/{name}.ext"
    with open(extensions, "w", encoding="ascii") as file:
        file.write("subjectAltName=" + ",".join(f"DNS:{host}" for host in hosts) + "\n"
                   "extendedKeyUsage=serverAuth\nkeyUsage=critical,digitalSignature\n")
    openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial",
            "-days", "825", "-extfile", extensions, "-out", leaf + ".crt")
    with open(leaf + ".tmp", "wb") as out:
        for part in (leaf + ".crt", key):
            with open(part, "rb") as file:
                out.write(file.read())
    os.chmod(leaf + ".tmp", 0o600)
    os.rename(leaf + ".tmp", leaf)
    return ca, leaf


def server_context(leaf):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf)
    context.set_alpn_protocols(["http/1.1"])
    return context
