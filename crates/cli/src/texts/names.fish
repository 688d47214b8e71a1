
# Names of pools and applications, for which the program is asked.
function __fish_forkyard_names
    set -l words (commandline -opc)
    forkyard names -- $words[2..-1] 2>/dev/null
end
complete -c forkyard -a '(__fish_forkyard_names)'
