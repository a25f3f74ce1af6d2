# bash completion of paddock. What can come next is told by the program itself: `paddock complete`.
_paddock() {
    local -a words lines
    local line=${COMP_LINE:0:COMP_POINT} current=
    read -ra words <<<"$line"
    # bash's own words are cut at : and =, which are in --url
    [[ $line == *[[:space:]] ]] || current=${words[-1]}
    [[ $line == *[[:space:]] ]] && words+=("")
    mapfile -t lines < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
    COMPREPLY=()
    if [[ ${lines[0]:-} == :files ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    else
        COMPREPLY=("${lines[@]%%$'\t'*}")
    fi
}
complete -F _paddock paddock
