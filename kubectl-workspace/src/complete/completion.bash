# bash completion of kubectl-workspace

_kubectl_workspace() {
    local line=${COMP_LINE:0:COMP_POINT} current candidate directive=0 prefix
    local -a typed
    read -ra typed <<<"$line"
    [[ $line == *[[:space:]] ]] && typed+=("")
    current=${typed[${#typed[@]} - 1]}
    # bash takes a word apart at these, and wants the last part only
    prefix=${current%"${current##*[:=@]}"}
    COMPREPLY=()
    while IFS= read -r candidate; do
        if [[ $candidate =~ ^:([0-9]+)$ ]]; then
            directive=${BASH_REMATCH[1]}
        else
            candidate=${candidate%%$'\t'*}
            COMPREPLY+=("${candidate#"$prefix"}")
        fi
    done < <("${typed[0]}" __complete "${typed[@]:1}" 2>/dev/null)
    ((directive & 2)) && compopt -o nospace
    ((directive & 4)) || compopt -o default
}

complete -F _kubectl_workspace kubectl-workspace
