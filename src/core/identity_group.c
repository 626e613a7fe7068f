/* The group of a command line (identity.h): pure functions of exe and argv, one row an interpreter. */
#include "core/identity.h"

#include <string.h>

#include "base/text.h"

/* Letters are those of one-dash options, which may be written together (-wne). A letter takes the rest of its argument
 * as its value, or the next one when there is no rest (value); the rest only, if any (rest); ends everything, since the
 * program is given in place (code); or names the program as its value (script). Long ones are whole words,
 * space-separated, two dashes or one. */
struct interpreter {
	const char *names; /* space-separated; a '*' at the end takes any ending */
	const char *value, *rest, *code, *script;
	const char *long_value; /* next argument is its value (with '=' it carries it) */
	const char *long_code;
	const char *long_script;
	bool is_whole; /* one-dash options are words and never written together (java) */
	bool has_plus; /* +x is an option, too (shells) */
	bool is_class; /* the program is a class: its name begins after the last dot (java) */
};

static const struct interpreter interpreters[] = {
	{.names = "python*",
		.value = "WXQ",
		.rest = "",
		.code = "c",
		.script = "m",
		.long_value = "--check-hash-based-pycs"},
	{.names = "perl*", .value = "I", .rest = "MmxiCDFVd", .code = "eE", .script = ""},
	{.names = "ruby*",
		.value = "IrCXE",
		.rest = "xiFKTW",
		.code = "e",
		.script = "",
		.long_value = "--encoding --external-encoding --internal-encoding --enable --disable --dump "
			      "--backtrace-limit --parser"},
	{.names = "node nodejs",
		.value = "rC",
		.rest = "",
		.code = "ep",
		.script = "",
		.long_value = "--require --import --loader --experimental-loader --conditions --title --icu-data-dir "
			      "--max-http-header-size "
			      "--inspect-port --debug-port --redirect-warnings --env-file --input-type "
			      "--diagnostic-dir --openssl-config --tls-cipher-list "
			      "--disable-warning --watch-path --dns-result-order --unhandled-rejections "
			      "--trace-event-categories "
			      "--trace-event-file-pattern --heapsnapshot-signal --secure-heap --secure-heap-min "
			      "--experimental-default-type "
			      "--disable-proto --report-dir --report-directory --report-filename --report-signal "
			      "--test-name-pattern --test-reporter "
			      "--test-reporter-destination --cpu-prof-dir --cpu-prof-name --heap-prof-dir "
			      "--heap-prof-name --localstorage-file "
			      "--network-family-autoselection-attempt-timeout --tls-keylog --tls-min-v1.2 "
			      "--use-largepages --stack-trace-limit",
		.long_code = "--eval --print"},
	{.names = "php*",
		.value = "cdzStTb",
		.rest = "",
		.code = "rBREa",
		.script = "fF",
		.long_value = "--php-ini --define --zend-extension --server --docroot",
		.long_code = "--run --process-begin --process-code --process-end --interactive",
		.long_script = "--file --process-file"},
	{.names = "java",
		.value = "",
		.rest = "",
		.code = "",
		.script = "",
		.is_whole = true,
		.is_class = true,
		.long_value = "-cp -classpath --class-path -p --module-path --upgrade-module-path --add-modules "
			      "--limit-modules "
			      "--enable-native-access --add-reads --add-exports --add-opens --patch-module -d "
			      "--describe-module --source",
		.long_script = "-jar -m --module"},
	{.names = "sh bash dash zsh ksh ksh93 mksh rbash",
		.value = "oO",
		.rest = "",
		.code = "cs",
		.script = "",
		.has_plus = true,
		.long_value = "--rcfile --init-file"},
};

/* Is the word of that length in a space-separated list? Entries ending in '*' are prefixes. */
static bool is_listed(const char *list, const char *word, size_t len)
{
	while (list && *list) {
		size_t n = strcspn(list, " ");
		if (n > 0 && list[n - 1] == '*' ? len >= n - 1 && memcmp(list, word, n - 1) == 0
						: n == len && memcmp(list, word, n) == 0)
			return true;
		list += n + (list[n] == ' ');
	}
	return false;
}

static bool has_letter(const char *letters, char c)
{
	return c && strchr(letters, c);
}

/* The last part of a path, without slashes at its end. */
static const char *base_of(const char *path, size_t *len)
{
	size_t end = strlen(path);

	while (end > 1 && path[end - 1] == '/')
		end--;
	size_t start = end;
	while (start > 0 && path[start - 1] != '/')
		start--;
	*len = end - start;
	return path + start;
}

/* What one argument of an interpreter means. */
struct step {
	enum { STEP_SKIP, STEP_SKIP_TWO, STEP_NONE, STEP_PROGRAM } what;
	const char *program; /* STEP_PROGRAM; null: it is the next argument */
};

static struct step read_word(const struct interpreter *it, const char *arg)
{
	size_t len = strcspn(arg, "=");
	bool has_value = arg[len] == '=';

	if (is_listed(it->long_code, arg, len))
		return (struct step){STEP_NONE, NULL};
	if (is_listed(it->long_script, arg, len))
		return (struct step){STEP_PROGRAM, has_value ? arg + len + 1 : NULL};
	return (struct step){!has_value && is_listed(it->long_value, arg, len) ? STEP_SKIP_TWO : STEP_SKIP, NULL};
}

static struct step read_letters(const struct interpreter *it, const char *arg)
{
	for (const char *p = arg + 1; *p; p++) {
		if (has_letter(it->code, *p))
			return (struct step){STEP_NONE, NULL};
		if (has_letter(it->script, *p))
			return (struct step){STEP_PROGRAM, p[1] ? p + 1 : NULL};
		/* A shell's -o takes the next argument wherever it stands (-eo pipefail, -oe pipefail). */
		if (has_letter(it->value, *p))
			return (struct step){p[1] && !it->has_plus ? STEP_SKIP : STEP_SKIP_TWO, NULL};
		if (has_letter(it->rest, *p))
			break;
	}
	return (struct step){STEP_SKIP, NULL};
}

/* The program of an interpreter's command line, or null: code in place, a terminal, standard input. */
static const char *program_of(const struct interpreter *it, int argc, char *const argv[])
{
	for (int i = 1; i < argc && argv[i]; i++) {
		const char *arg = argv[i];
		if (it->is_class && arg[0] == '@')
			continue; /* a file with more options */
		if (arg[0] != '-' && !(it->has_plus && arg[0] == '+' && arg[1]))
			return arg;
		if (strcmp(arg, "-") == 0)
			return it->has_plus && i + 1 < argc ? argv[i + 1] : NULL;
		if (strcmp(arg, "--") == 0)
			return i + 1 < argc ? argv[i + 1] : NULL;
		struct step step = it->is_whole || arg[1] == '-' ? read_word(it, arg) : read_letters(it, arg);
		if (step.what == STEP_NONE)
			return NULL;
		if (step.what == STEP_PROGRAM)
			return step.program ? step.program : i + 1 < argc ? argv[i + 1] : NULL;
		if (step.what == STEP_SKIP_TWO)
			i++;
	}
	return NULL;
}

static bool ends_in(const char *s, size_t len, const char *end)
{
	size_t n = strlen(end);

	return len >= n && memcmp(s + len - n, end, n) == 0;
}

static void add_program(struct text *t, const struct interpreter *it, const char *program)
{
	size_t len;
	const char *name;

	if (it->is_class && !ends_in(program, strlen(program), ".jar") && !ends_in(program, strlen(program), ".java")) {
		/* com.a.Main, com/a/Main, module/com.a.Main */
		name = base_of(program, &len);
		while (len > 0 && memchr(name, '.', len)) {
			const char *dot = memchr(name, '.', len);
			len -= (size_t)(dot + 1 - name);
			name = dot + 1;
		}
	} else {
		name = base_of(program, &len);
	}
	if (len == 0)
		return;
	text_char(t, '-');
	text_bytes(t, name, len);
}

void identity_group(char group[GROUP_MAX + 1], const char *exe, int argc, char *const argv[])
{
	char wanted[512];
	struct text t = TEXT_ON(wanted);
	const char *path = exe && exe[0] ? exe : argc > 0 && argv[0] ? argv[0] : "";
	size_t len;
	const char *name = base_of(path, &len);

	/* Replaced on disk since it was started (/proc/self/exe says so): still the same program. */
	if (ends_in(name, len, " (deleted)"))
		len -= strlen(" (deleted)");
	wanted[0] = '\0';
	text_bytes(&t, name, len);
	for (size_t i = 0; i < sizeof interpreters / sizeof interpreters[0]; i++) {
		const struct interpreter *it = &interpreters[i];
		if (!is_listed(it->names, name, len))
			continue;
		/* php-fpm's workers run whatever is asked for: its options name no script. */
		const char *program = len >= 7 && memcmp(name, "php-fpm", 7) == 0 ? NULL : program_of(it, argc, argv);
		if (program)
			add_program(&t, it, program);
		break;
	}
	identity_clean_group(group, wanted);
}
