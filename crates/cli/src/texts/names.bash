
# Names of pools and applications, for which the program is asked. No name has a character that bash would carry out.
_forkyard_with_names() {
    local name current="${COMP_WORDS[COMP_CWORD]}"
    local -a names=()
    _forkyard "$@"
    [[ $current == -* ]] && return
    while IFS= read -r name; do
        [[ $name == "$current"* ]] && names+=("$name")
    done < <("$1" names -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)
    [[ ${#names[@]} -gt 0 ]] && COMPREPLY=("${names[@]}")
}
complete -F _forkyard_with_names -o bashdefault -o default forkyard
