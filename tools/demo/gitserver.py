"""A git server: `git http-backend` (smart HTTP, gitprotocol-http(5)) behind TLS."""
import os
import subprocess

from server import Handler, Record, Server


def git(*arguments, cwd=None, data=None):
    """git with no configuration of this machine; returns its output."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
                   "GIT_AUTHOR_DATE": "2011-01-26T19:06:08Z", "GIT_AUTHOR_NAME": "The Octocat",
                   "GIT_AUTHOR_EMAIL": "octocat@nowhere.test", "GIT_COMMITTER_NAME": "The Octocat",
                   "GIT_COMMITTER_DATE": "2011-01-26T19:06:08Z",
                   "GIT_COMMITTER_EMAIL": "octocat@nowhere.test"}
    return subprocess.run(["git", *arguments], cwd=cwd, input=data, check=True, env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


def make_repository(folder, name, files):
    """A bare repository FOLDER/NAME.git with one commit that holds `files` {path: bytes}."""
    path = f"{folder}/{name}.git"
    if os.path.exists(path):
        return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = path + ".tmp"
    git("init", "-q", "--bare", "-b", "master", temporary)
    stream = [b"commit refs/heads/master\n"
              b"committer The Octocat <octocat@nowhere.test> 1296068768 +0000\n"
              b"data 14\nFirst commit.\n\n"]
    for file, data in files.items():
        stream.append(b"M 100644 inline %s\ndata %d\n%s\n" % (file.encode(), len(data), data))
    git("fast-import", "--quiet", cwd=temporary, data=b"".join(stream))
    os.rename(temporary, path)
    return path


class GitHandler(Handler):
    def do_GET(self):
        self.serve()

    def do_POST(self):
        self.serve()

    def environment(self, path, query):
        names = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH",
                 "content-encoding": "HTTP_CONTENT_ENCODING", "git-protocol": "GIT_PROTOCOL"}
        environment = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": self.server.repositories,
                       "GIT_HTTP_EXPORT_ALL": "1", "GIT_CONFIG_NOSYSTEM": "1",
                       "HOME": "/nonexistent", "REQUEST_METHOD": self.command, "PATH_INFO": path,
                       "QUERY_STRING": query, "REMOTE_USER": "demo", "REMOTE_ADDR": "127.0.0.1",
                       "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "safe.directory",
                       "GIT_CONFIG_VALUE_0": "*", "GIT_CONFIG_KEY_1": "http.receivepack",
                       "GIT_CONFIG_VALUE_1": "true"}
        environment.update({variable: self.headers[name] for name, variable in names.items()
                            if name in self.headers})
        return environment

    def serve(self):
        path, _, query = self.path.partition("?")
        self.server.record.add(method=self.command, path=self.path,
                               headers={n.lower(): v for n, v in self.headers.items()})
        parts = path.split("/")
        if len(parts) > 2 and not parts[2].endswith(".git"):
            parts[2] += ".git"
            path = "/".join(parts)
        with subprocess.Popen(["git", "http-backend"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              env=self.environment(path, query)) as backend:
            try:
                for part in self.body_parts():
                    backend.stdin.write(part)
                backend.stdin.close()
            except BrokenPipeError:
                pass
            self.relay(backend.stdout)

    def relay(self, output):
        status, headers = 200, []
        for line in iter(output.readline, b""):
            name, _, value = line.decode("latin-1").strip().partition(": ")
            if not name:
                break
            if name.lower() == "status":
                status = int(value.split()[0])
            else:
                headers.append((name.lower(), value))
        kinds = [value for name, value in headers if name == "content-type"]
        rest = [(n, v) for n, v in headers if n not in ("content-type", "content-length")]
        self.begin_stream(status, kinds[0] if kinds else "text/plain", rest)
        for part in iter(lambda: output.read1(1 << 16), b""):
            self.chunk(part)
        self.end_stream()


def start(folder, port, leaf):
    server = Server(port, leaf, GitHandler)
    server.repositories = f"{folder}/repositories"
    server.record = Record(f"{folder}/git.jsonl")
    make_repository(server.repositories, "octocat/Hello-World", {"README": b"Hello World!\n"})
    return server.start()
