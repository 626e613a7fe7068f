/* A plug-in with a TLS library of its own, as far as names go (two_tls.c): its objects mean nothing to another. */
// link: -shared -fPIC -O2
int SSL_read(void *ssl, void *buf, int n);
void *SSL_new(void *context);
int plugin_reads(void *own);
int plugin_jumps(void *own, void *buf, int n);
void *plugin_object(void);

static const char methods[8] = "own";
static struct {
	int version;
	const void *methods;
} object = {7, methods};

int SSL_read(void *ssl, void *buf, int n)
{
	(void)buf;
	return ssl == &object ? 4200 + n : -7;
}

void *SSL_new(void *context)
{
	(void)context;
	return &object;
}

void *plugin_object(void)
{
	return &object;
}

int plugin_reads(void *own)
{
	char c;
	return SSL_read(own, &c, 1) + 1; /* no tail call: the caller is we */
}

/* A tail call: who called us is all that the callee sees. */
int plugin_jumps(void *own, void *buf, int n)
{
	return SSL_read(own, buf, n);
}
