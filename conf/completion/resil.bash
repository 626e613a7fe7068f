# bash: installed as share/bash-completion/completions/resil, or: source resil.bash
_resil() {
	local line=${COMP_LINE:0:COMP_POINT} word before one
	local -a words
	read -ra words <<<"$line"
	[[ $line != *[[:space:]] ]] || words+=('')
	word=${words[-1]}
	# bash takes words apart at colons and equals signs: what stands before the last one stays.
	before=
	[[ $word != *[:=]* ]] || before=${word%"${word##*[:=]}"}
	COMPREPLY=()
	while IFS=$'\t' read -r one _; do
		case $one in
		:files)
			compopt -o filenames
			mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")
			;;
		:commands) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$word") ;;
		*)
			[[ $one != *= ]] || compopt -o nospace
			COMPREPLY+=("${one#"$before"}")
			;;
		esac
	done < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
}
complete -F _resil resil
