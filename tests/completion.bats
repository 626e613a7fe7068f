#!/usr/bin/env bats
# Completion in the shells themselves: bash and zsh with Tab in a terminal, fish by its own `complete -C`.
load lib/common
load lib/terminal
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
	terminal_setup
	export PATH=$build:$PATH
	peer server 127.0.0.1 answer
	name=127.0.0.1:$server_port
	RESIL_GROUP=billing under "$bin/dial" 127.0.0.1 "$server_port" >/dev/null
}
teardown() {
	terminal_teardown
	common_teardown
}
offered() {
	run resil complete -- "$@"
	local words=("${lines[@]%%$'\t'*}")
	output=${words[*]}
}
shell() { terminal 100 30 "$@"; }
# types TEXT RESULT: with a Tab after it, on a line of its own.
types() {
	keys C-u
	keys -l "$1"
	keys Tab
	shows "$2"
}

@test "what is offered: verbs, options, groups, destinations, modes, keys, files" {
	offered st
	assert_output status
	offered force ''
	assert_output "$name"
	offered force "$name" ''
	assert_output "open closed observe auto"
	offered force "$name" o
	assert_output "open observe"
	offered status -g ''
	assert_output billing
	offered status --ex
	assert_output -- --exit-code
	offered run -s answer
	assert_output answer_timeout=
	offered check ''
	assert_output :files
	offered run -g x ''
	assert_output :commands
	offered run -- curl ''
	assert_output :files
	offered nope ''
	assert_output ''
	# Each long option that a verb's help has is offered, and taken by the verb.
	for verb in $(resil complete -- '' | cut -f1); do
		for option in $(resil help "$verb" | sed -nE 's/^ +(-., )?(--[a-z-]+).*/\2/p'); do
			offered "$verb" "$option"
			[[ " $output " == *" $option "* ]] || fail "$verb $option: $output"
		done
	done
	run -2 resil complete
}

@test "bash" {
	shell env PS1='$ ' bash --norc --noprofile
	keys "source $root/conf/completion/resil.bash; clear" Enter
	shows '^\$ *$'
	types "resil sta" '^\$ resil status$'
	types "resil force 127" "^\\\$ resil force $name"
	types "resil force 127.0.0.1:" "^\\\$ resil force $name"
	types "resil run -s answer" '^\$ resil run -s answer_timeout=$'
	types "resil status -g bil" '^\$ resil status -g billing'
	types "resil check $root/conf/resil.c" "resil.conf"
}

@test "zsh" {
	mkdir "$dir/functions"
	cp "$root/conf/completion/_resil" "$dir/functions/"
	shell env PS1='$ ' zsh -f
	keys "fpath=($dir/functions \$fpath); autoload -U compinit; compinit -D -u; PS1='> '; clear" Enter
	shows '^> *$'
	types "resil sta" '^> resil status'
	types "resil force 127" "^> resil force $name"
	types "resil run -s answer" '^> resil run -s answer_timeout='
	types "resil status -g bil" '^> resil status -g billing'
}

@test "fish" {
	offers() { run bare fish -N -c "source $root/conf/completion/resil.fish; complete -C '$1'" && output=$(cut -f1 <<<"$output" | xargs); }
	offers "resil sta"
	assert_output status
	offers "resil force "
	assert_output "$name"
	offers "resil run -s answer"
	assert_output answer_timeout=
	offers "resil status -g bil"
	assert_output billing
	offers "resil check $root/conf/resil.c"
	assert_output "$root/conf/resil.conf"
}
