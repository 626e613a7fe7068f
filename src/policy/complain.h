/* The faults of a configuration as text: one line each, counted, never more than the caller's buffer holds, and the
 * nearest right word. */
#ifndef RESIL_POLICY_COMPLAIN_H
#define RESIL_POLICY_COMPLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

#define COMPLAIN_MOST                                                                                                  \
	1000 /* reading stops after so many faults: a file that is none is not worth a second of a constructor */

struct complaints {
	struct text *out;   /* null: only counted */
	const char *source; /* a file's path, or "RESIL_SET"; "": what is wrong names it itself */
	int count;
	int hidden; /* did not fit into out */
};

/* What is wrong, piece by piece; what was read is quoted by complain(). */
struct fault {
	struct text what, accepted, suggestion;
	const char *part; /* what of the value is wrong, part_len bytes; null: all of it */
	size_t part_len;
	char what_bytes[192], accepted_bytes[768], suggestion_bytes[96];
};

/* Empties it. Not zeroed: text keeps the bytes terminated. */
void fault_clear(struct fault *f);
/* `SOURCE:LINE: what ('VALUE'; accepted; did you mean suggestion?)`. line 0: none is shown. value: n bytes as read,
 * null: none is quoted. */
void complain(struct complaints *c, uint32_t line, const struct fault *f, const char *value, size_t n);
/* The same for a plain sentence. */
void complain_plain(
	struct complaints *c, uint32_t line, const char *what, const char *value, size_t n, const char *accepted);
/* Says how many did not fit. Once, at the end. */
void complain_finish(struct complaints *c);

/* The word of a list (null-terminated) nearest to s: at most two slips away (a letter wrong, missing, too many, or two
 * swapped; case ignored), and fewer than half of the word's letters. Null: none is near. */
const char *complain_nearest(const char *s, size_t n, const char *const *words);

#endif
