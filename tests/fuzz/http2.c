/* Turns of any octets (wire/http2.h): at once and octet by octet the same is told and, until it is lost, the state is
 * the same; what is announced are the streams that then begin; what is lost stays lost; what passes by the short roads
 * tells nothing but lengths of DATA, and leads to the same state. Turns: one octet of direction
 * (its highest bit: sent) and length less one. */
#include "wire/http2.h"

#include "fuzz.h"

struct told {
	struct http2_event list[600];
	size_t count, begun;
	uint32_t last_begun;
};

static void on_event(void *context, const struct http2_event *e)
{
	struct told *t = context;
	claim(t->count < sizeof t->list / sizeof t->list[0]);
	if (e->what == HTTP2_REQUEST_BEGINS) {
		t->begun++;
		t->last_begun = e->stream;
	}
	if (e->what != HTTP2_ANSWER_DATA || e->value)
		t->list[t->count++] = *e;
}

static bool feed(struct http2 *h, bool is_sent, uint8_t *p, size_t n, struct told *t)
{
	struct iovec iov = {p, n};
	return is_sent ? http2_sent(h, &iov, 1, n, on_event, t) : http2_received(h, &iov, 1, 0, n, on_event, t);
}

/* What the frames before have left behind means nothing. */
static bool is_same_side(const struct http2_side *a, const struct http2_side *b)
{
	const struct http2_place *p = &a->place, *q = &b->place;
	if (p->preface != q->preface || p->have != q->have || memcmp(p->head, q->head, p->have) ||
		a->block != b->block || a->has_begun != b->has_begun ||
		memcmp(&a->fields, &b->fields, sizeof a->fields))
		return false;
	if (p->have < sizeof p->head)
		return true;
	return p->left == q->left && a->type == b->type && a->flags == b->flags && a->stream == b->stream &&
	       a->small_have == b->small_have && !memcmp(a->small, b->small, a->small_have);
}

static bool is_same(const struct http2 *a, const struct http2 *b)
{
	return is_same_side(&a->sent, &b->sent) && is_same_side(&a->received, &b->received);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct http2 h, slow, plain;
	static struct told fast_told, slow_told, announced;

	http2_init(&h);
	http2_init(&slow);
	for (size_t i = 0; i < size;) {
		bool is_sent = data[i] & 0x80, was_lost = http2_is_lost(&h);
		size_t n = (data[i++] & 0x7f) + 1u;
		if (n > size - i)
			n = size - i;
		/* A copy of exactly that size: a read beyond it is seen. */
		uint8_t *bytes = malloc(n ? n : 1);
		claim(bytes);
		memcpy(bytes, data + i, n);
		fast_told = slow_told = announced = (struct told){.count = 0};
		if (is_sent) {
			struct iovec iov = {bytes, n};
			http2_announce(&h, &iov, 1, n, on_event, &announced);
		}
		struct http2_data passed = {0};
		plain = h;
		bool is_plain = n > 0 && (is_sent ? http2_is_data(&plain, bytes, n)
						  : http2_received_data(&plain, bytes, n, &passed));
		bool is_well = feed(&h, is_sent, bytes, n, &fast_told);
		claim(is_well == !http2_is_lost(&h) && (!was_lost || !is_well));
		for (size_t k = 0; is_plain && k < fast_told.count; k++) {
			claim(!is_sent && fast_told.list[k].what == HTTP2_ANSWER_DATA);
			claim(fast_told.list[k].stream == passed.stream);
			passed.octets -= fast_told.list[k].value;
		}
		claim(!is_plain || (is_well && !passed.octets && is_same(&plain, &h)));
		for (size_t k = 0; k < n; k++)
			feed(&slow, is_sent, bytes + k, 1, &slow_told);
		free(bytes);
		claim(is_well == !http2_is_lost(&slow) && (!is_well || is_same(&h, &slow)));
		claim(fast_told.count == slow_told.count);
		claim(memcmp(fast_told.list, slow_told.list, fast_told.count * sizeof fast_told.list[0]) == 0);
		claim(!is_well || !is_sent ||
			(announced.begun == fast_told.begun && announced.last_begun == fast_told.last_begun));
		i += n;
	}
	return 0;
}
