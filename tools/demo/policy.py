"""Turns a policy for the real hosts into the same one for the demo's servers."""
import json

def without_comments(text):
    """JSON with // and /* */ comments taken out; strings are left alone."""
    out, at, in_string = [], 0, False
    while at < len(text):
        if in_string:
            step = 2 if text[at] == "\\" else 1
            in_string = text[at] != '"'
            out.append(text[at:at + step])
            at += step
        elif text.startswith("//", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            at = text.index("*/", at) + 2
        else:
            in_string = text[at] == '"'
            out.append(text[at])
            at += 1
    return "".join(out)


def read_policy(path):
    with open(path, encoding="utf-8") as file:
        return json.loads(without_comments(file.read()))


def with_upstreams(policy, upstreams, ca_name):
    """Adds `upstream` and `upstream_ca` to each rule whose host is in `upstreams`; nothing else."""
    return {**policy, "rules": [
        {**rule, "upstream": upstreams[rule["host"]], "upstream_ca": ca_name}
        if rule.get("host") in upstreams else rule for rule in policy["rules"]]}
