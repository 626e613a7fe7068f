/* What passes by the cache, however it is cut: the same is kept, and what is served of it is an answer. The first octet
 * seeds the cuts, the next two say how long the request is. */
#include "fuzz.h"

#include "../unit/engine_cache_help.h"

/* Whether a line begins with BEGIN and, further on, has PART: a line ends at CR or LF alone, too, as llhttp takes it.
 */
static bool has_line(const struct octets *text, const char *begin, const char *part)
{
	const char *end = text->at + text->n;
	for (const char *line = text->at; line < end; line++) {
		if (line > text->at && line[-1] != '\r' && line[-1] != '\n')
			continue;
		const char *after = line + strcspn(line, "\r\n");
		if (strncmp(line, begin, strlen(begin)) == 0 &&
			memmem(line, (size_t)(after - line), part, strlen(part)))
			return true;
	}
	return false;
}

static void look(const struct octets *request, const struct octets *answer, enum cut cut, struct octets *said)
{
	empty();
	pass_by(HERE, request, answer, cut);
	said->n = 0;
	if (!ask(HERE, request, cut, said) || !is_served(said)) {
		said->n = 0;
		return;
	}
	/* Of this very request, and nothing in it but what came. */
	const char *end = strstr(said->at, "\r\n\r\n"), *length = strstr(said->at, "\r\nContent-Length: ");
	claim(end && length && length < end && strstr(said->at, "\r\nX-Resil-Source: cache\r\n") < end);
	claim(has_line(answer, "HTTP/", " 200"));
	claim(has_line(request, "GET ", ""));
	claim(!strcasestr(said->at, "\r\nSet-Cookie:") || strcasestr(said->at, "\r\nSet-Cookie:") > end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct octets request, answer, whole, cut;
	if (size < 3 || size > 16384)
		return 0;
	if (!dir[0]) {
		make_folder();
		atexit(remove_folder);
	}
	random_state = 88172645463325252ULL + data[0];
	size_t n = data[1] | (size_t)data[2] << 8, left = size - 3;
	if (n > left)
		n = left;
	request.n = (uint32_t)n;
	answer.n = (uint32_t)(left - n);
	memcpy(request.at, data + 3, request.n);
	memcpy(answer.at, data + 3 + n, answer.n);
	request.at[request.n] = answer.at[answer.n] = 0;
	look(&request, &answer, WHOLE, &whole);
	look(&request, &answer, EACH, &cut);
	claim(cut.n == whole.n);
	look(&request, &answer, RANDOM, &cut);
	claim(cut.n == whole.n);
	return 0;
}
