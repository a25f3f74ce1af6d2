#!/usr/bin/python3
"""Serves the scripted gateway and the git server on loopback; see README.md beside this file."""
import argparse
import json
import os
import secrets
import shutil
import signal

import gateway
import gitserver
from policy import read_policy, with_upstreams
from tls import make_certificates

REAL_POLICY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../policy/default.json")


def token_of(folder):
    """The demo's gateway token, made once, readable by its owner alone; also a secrets_dir."""
    os.makedirs(f"{folder}/secrets", mode=0o700, exist_ok=True)
    path = f"{folder}/secrets/AI_GATEWAY_TOKEN"
    if not os.path.exists(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write("demo-" + secrets.token_hex(16))
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def write_policy(folder, real, gateway_port, git_port, ca):
    """FOLDER/policy/demo.json: the real policy with the demo's servers as upstreams."""
    os.makedirs(f"{folder}/policy", exist_ok=True)
    shutil.copy(ca, f"{folder}/policy/demo-ca.pem")
    upstreams = {"gateway.ai.cloudflare.com": f"127.0.0.1:{gateway_port}",
                 "github.com": f"127.0.0.1:{git_port}"}
    path = f"{folder}/policy/demo.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(with_upstreams(read_policy(real), upstreams, "demo-ca.pem"), file, indent=2)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, help="for CA, token, repositories and records")
    parser.add_argument("--gateway-port", type=int, default=0, help="0: any free one")
    parser.add_argument("--git-port", type=int, default=0)
    parser.add_argument("--account", default="demo-account")
    parser.add_argument("--policy", default=REAL_POLICY, help="the policy that the demo's is made of")
    options = parser.parse_args()
    folder = os.path.abspath(options.folder)
    os.makedirs(folder, exist_ok=True)
    ca, leaf = make_certificates(folder)
    token = token_of(folder)
    gateway_server = gateway.start(folder, options.gateway_port, leaf, token, options.account)
    git_server = gitserver.start(folder, options.git_port, leaf)
    policy = write_policy(folder, options.policy, gateway_server.port, git_server.port, ca)
    print(json.dumps({"gateway_port": gateway_server.port, "git_port": git_server.port, "ca": ca,
                      "account": options.account, "policy": policy,
                      "secrets_dir": f"{folder}/secrets"}), flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
