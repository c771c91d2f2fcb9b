#compdef kubectl-workspace

_kubectl-workspace() {
    local -a lines candidates options
    local line directive
    lines=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    directive=${lines[-1]#:}
    for line in "${(@)lines[1,-2]}"; do
        candidates+=("${${line//:/\\:}/$'\t'/:}")
    done
    ((directive & 2)) && options=(-S '')
    ((${#candidates})) && _describe -t words 'kubectl workspace' candidates "${(@)options}"
    ((directive & 4)) || _files
}

if [[ ${funcstack[1]} == _kubectl-workspace ]]; then
    _kubectl-workspace "$@"
else
    compdef _kubectl-workspace kubectl-workspace
fi
