# Completions of tarnfs for fish. The program itself says what may come next.
function __tarnfs_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($words[1] __complete -- $words $current 2>/dev/null)
    # Behind `--option=` stands a word of its own, but fish replaces all of it.
    set -l before (string match -r -- '^--[^=]*=' $current)
    set -l value (string replace -r -- '^--[^=]*=' '' $current)
    set -l offered $lines[2..-1]
    switch "$lines[1]"
        case files
            set -a offered (__fish_complete_path $value)
        case folders
            set -l folders (__fish_complete_directories $value '')
            if set -q folders[1]
                set -a offered $folders
            else
                set -a offered (__fish_complete_path $value)
            end
    end
    for line in $offered
        printf '%s\n' "$before$line"
    end
end
complete -c tarnfs -f -k -a '(__tarnfs_complete)'
