# fish completion of kubectl-workspace

function __kubectl_workspace_complete
    set -l typed (commandline -opc) (commandline -ct)
    set -l lines ($typed[1] __complete $typed[2..-1] 2>/dev/null)
    set -l directive 4
    for line in $lines
        if string match -qr '^:[0-9]+$' -- $line
            set directive (string sub -s 2 -- $line)
        else
            printf '%s\n' $line
        end
    end
    if test (math "bitand($directive, 4)") -eq 0
        __fish_complete_path (commandline -ct)
    end
end

complete -c kubectl-workspace -f -a '(__kubectl_workspace_complete)'
