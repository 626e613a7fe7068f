# fish: installed as share/fish/vendor_completions.d/resil.fish
function __resil_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] complete -- $words[2..-1] 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (commandline -ct)
            case ':commands'
                complete -C (commandline -ct)
            case '*'
                echo $line
        end
    end
end
complete -c resil -f -a '(__resil_complete)'
