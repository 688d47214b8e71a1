
# Names of pools and applications, for which the program is asked.
_forkyard() {
    local -a names
    names=(${(f)"$(${words[1]} names -- ${words[2,CURRENT-1]} 2>/dev/null)"})
    (( $#names )) && compadd -a names
    _forkyard_words "$@"
}
