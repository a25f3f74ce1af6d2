# fish completion of paddock. What can come next is told by the program itself: `paddock complete`.
function __paddock_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($words[1] complete -- $words[2..] "$current" 2>/dev/null)
    if test "$lines[1]" = ":files"
        __fish_complete_path "$current"
    else
        printf '%s\n' $lines
    end
end
complete -c paddock -f -a '(__paddock_complete)'
