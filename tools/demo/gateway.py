"""A scripted model gateway: Anthropic's Messages API with streaming, and its faults on demand."""
import json
import re
import time

from server import Handler, Record, Server

NOTES = ('This repository is a minimal test/example repo containing only a "Hello World!" README '
         'file.\n')
REPLY = "Created `NOTES.md` with a one-sentence summary. Left uncommitted as requested."
ERROR_TYPES = {401: "authentication_error", 402: "billing_error", 403: "permission_error",
               404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}


def texts(content):
    """All text of a message's content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return [content]
    return [block.get("text", "") for block in content if block.get("type") == "text"]


def tool_results(messages):
    return sum(1 for message in messages if isinstance(message.get("content"), list)
               for block in message["content"] if block.get("type") == "tool_result")


def working_directory(request):
    found = re.search(r"[Ww]orking directory: (/[^\s\"\\]+)", json.dumps(request))
    return found.group(1) if found else "/workspace/repo"


def script_of(request):
    """The script that the prompt carries, else the default one."""
    for message in request["messages"]:
        for text in texts(message.get("content", "")):
            if "SCRIPT:" in text:
                return json.JSONDecoder().raw_decode(text.split("SCRIPT:", 1)[1].lstrip())[0]
    return [{"tool": "Write", "input": {"file_path": working_directory(request) + "/NOTES.md",
                                        "content": NOTES}}, {"text": REPLY}]


def content_of(step, number):
    """The answer's content block and its stop reason."""
    if "tool" in step:
        return ({"type": "tool_use", "id": f"toolu_{number:04d}", "name": step["tool"],
                 "input": step.get("input", {})}, "tool_use")
    default = "The whole answer, not streamed." if "fault" in step else ""
    return {"type": "text", "text": step.get("text", default)}, "end_turn"


class Gateway(Handler):
    def do_HEAD(self):
        self.answer(200)

    def do_GET(self):
        self.server.record.add(method="GET", path=self.path, size=0, headers={
            name.lower(): value for name, value in self.headers.items()})
        if self.headers.get("cf-aig-authorization") != "Bearer " + self.server.token:
            self.error(401, "Unauthorized")
            return
        self.answer(404, b'{"type":"error","error":{"type":"not_found_error","message":"no"}}')

    def do_POST(self):
        data = self.body()
        server = self.server
        server.record.add(method="POST", path=self.path, size=len(data),
                          headers={name.lower(): value for name, value in self.headers.items()})
        if not re.match(rf"/v1/{server.account}/{server.gateway}/anthropic/v1/messages(\?|$)",
                        self.path):
            return self.error(404, "no such route: " + self.path)
        if self.headers.get("cf-aig-authorization") != "Bearer " + server.token:
            return self.error(401, "Unauthorized")
        if self.headers.get("x-api-key") is not None:
            return self.error(401, "invalid x-api-key")
        request = json.loads(data)
        script = script_of(request)
        number = tool_results(request["messages"])
        step = script[min(number, len(script) - 1)]
        if "status" in step:
            return self.error(step["status"], step.get("message", "scripted"))
        if request.get("stream"):
            return self.stream(request, step, number)
        content, stop = content_of(step, number)
        return self.answer(200, json.dumps(self.message(request, [content], stop)).encode())

    def error(self, status, message):
        kind = ERROR_TYPES.get(status, "api_error")
        body = {"type": "error", "error": {"type": kind, "message": message}}
        self.answer(status, json.dumps(body).encode())

    @staticmethod
    def message(request, content, stop):
        return {"id": "msg_demo", "type": "message", "role": "assistant",
                "model": request.get("model"), "content": content, "stop_reason": stop,
                "stop_sequence": None, "usage": {"input_tokens": 100, "output_tokens": 20}}

    def event(self, kind, **fields):
        self.chunk(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode())

    def text_block(self, parts, interval_s=0):
        self.event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for part in parts:
            if interval_s:
                time.sleep(interval_s)
            self.event("content_block_delta", index=0, delta={"type": "text_delta", "text": part})

    def stream(self, request, step, number):
        self.begin_stream(200, "text/event-stream", [("request-id", f"req_{number}")])
        self.event("message_start", message=self.message(request, [], None))
        self.event("ping")
        fault = step.get("fault")
        if fault == "error":
            self.event("error", error={"type": "overloaded_error", "message": "scripted"})
            return self.end_stream()
        if fault:
            self.text_block(["This answer is not "])
            if fault == "drop":
                return self.cut()
            self.event("content_block_stop", index=0)
            return self.end_stream()
        content, stop = content_of(step, number)
        if "slow" in step:
            slow = step["slow"]
            self.text_block(["." for _ in range(slow["events"])] + [slow.get("text", "done")],
                            slow["interval_ms"] / 1000)
        elif content["type"] == "text":
            self.text_block([content["text"]])
        else:
            self.event("content_block_start", index=0, content_block={**content, "input": {}})
            self.event("content_block_delta", index=0,
                       delta={"type": "input_json_delta",
                              "partial_json": json.dumps(content["input"])})
        self.event("content_block_stop", index=0)
        self.event("message_delta", delta={"stop_reason": stop, "stop_sequence": None},
                   usage={"output_tokens": 20})
        self.event("message_stop")
        return self.end_stream()


def start(folder, port, leaf, token, account="demo-account", gateway="default"):
    server = Server(port, leaf, Gateway)
    server.record = Record(f"{folder}/gateway.jsonl")
    server.token, server.account, server.gateway = token, account, gateway
    return server.start()
