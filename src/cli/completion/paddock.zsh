#compdef paddock
# zsh completion of paddock. What can come next is told by the program itself: `paddock complete`.
_paddock() {
    local line
    local -a lines candidates
    lines=("${(@f)$("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ ${lines[1]} == :files ]]; then
        _files
        return
    fi
    for line in ${lines}; do
        candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    _describe paddock candidates
}
if [[ $funcstack[1] == _paddock ]]; then
    _paddock "$@"
else
    compdef _paddock paddock
fi
