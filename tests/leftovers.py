"""What a daemon's instances may leave behind: mounts, control groups, processes, descriptors, folders."""
import os
import pathlib

import harness

# Those that the daemon always has, or starts anew; "": it has ended meanwhile.
HELPERS = ("paddock-api", "paddock-egress", "")


def program_of(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def leftovers(daemon, word="leftover"):
    """Mounts, cgroups and processes that belong to the daemon's instances. User namespaces are not
    counted: the pool of ids keeps one for each block that was ever used."""
    def is_counted(fd):
        try:
            return not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("user:")
        except FileNotFoundError:
            return False
    pid = daemon.process.pid
    mounts = pathlib.Path(f"/proc/{pid}/mountinfo").read_text().count(str(daemon.state))
    groups = [path for path, _, _ in os.walk("/sys/fs/cgroup") if word in path]
    fds = sum(map(is_counted, os.listdir(f"/proc/{pid}/fd")))
    folders = sorted(os.listdir(daemon.state / "sandboxes"))
    children = [child for child in harness.children_of(pid) if program_of(child) not in HELPERS]
    return mounts, groups, fds, folders, children


def leftovers_at_rest(daemon, word="leftover"):
    """As leftovers, once no job of an earlier end is under way."""
    def at_rest():
        found = leftovers(daemon, word)
        has_jail = any("/jail." in group for group in found[1])
        # one that has ended and is not waited for yet still has its descriptor
        has_dead = not all(map(program_of, harness.children_of(daemon.process.pid)))
        return not os.listdir(daemon.state / "trash") and not found[-1] and not has_jail and not has_dead and found
    return harness.wait_for(at_rest, 30, "the end of the jobs of earlier ends")
