# Completions of tarnfs for bash. The program itself says what may come next.
_tarnfs() {
    local IFS=$'\n' program=$1 current=$2 line word words
    # An alias means the program that it begins with.
    [[ -n ${BASH_ALIASES[$1]-} ]] && program=${BASH_ALIASES[$1]%% *}
    words=("${COMP_WORDS[@]:0:COMP_CWORD}")
    # In front of what is a word to tarnfs, bash may have cut off an option.
    [[ ${COMP_WORDS[COMP_CWORD]} == = ]] && words+=(=)
    words=("${words[@]//\\/}")
    mapfile -t line < <("$program" __complete -- "${words[@]}" "${current//\\/}" 2>/dev/null)
    COMPREPLY=()
    for word in "${line[@]:1}"; do
        COMPREPLY+=("${word%%$'\t'*}")
    done
    # Quotes what needs it, and shows only the last part of a path.
    compopt -o filenames
    # Lines as they are: a name may look like a pattern.
    case ${line[0]} in
    files) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current") ;;
    folders)
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$current")
        [[ ${#COMPREPLY[@]} -gt 0 ]] || mapfile -t COMPREPLY < <(compgen -f -- "$current")
        ;;
    esac
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace
    return 0
}
complete -o nosort -F _tarnfs tarnfs
# An alias that was made before.
[[ -n ${BASH_ALIASES[ratarmount]-} ]] && complete -o nosort -F _tarnfs ratarmount
true
