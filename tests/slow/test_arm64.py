"""The tree compiles for arm64 without a warning, and its unit tests pass under emulation."""
import bare


def test_the_tree_compiles_clean_for_arm64(folder):
    share = folder / "arm64"
    bare.copy_tree(share / "src")
    bare.run_on_a_bare_machine(share, "arm64_inside.sh")
