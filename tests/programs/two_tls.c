/* Two TLS libraries in one process (A9): OpenSSL, which the program is linked with, and a plug-in's own of the same
 * names, loaded with RTLD_DEEPBIND. Each object must reach its own. usage: two_tls PLUGIN */
// link: -lssl -lcrypto -ldl
#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>

#include "tool.h"

int main(int argc, char **argv)
{
	must(argc == 2);
	void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	must(plugin);
	int (*plugin_reads)(void *) = (int (*)(void *))dlsym(plugin, "plugin_reads");
	int (*plugin_jumps)(void *, void *, int) = (int (*)(void *, void *, int))dlsym(plugin, "plugin_jumps");
	void *(*plugin_object)(void) = (void *(*)(void))dlsym(plugin, "plugin_object");
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	SSL *ssl = SSL_new(context);
	char c;

	for (int i = 0; i < 3; i++) {
		must(plugin_reads(plugin_object()) == 4202);
		must(plugin_jumps(plugin_object(), &c, 1) == 4201);
		/* Not set up: OpenSSL says so. */
		must(SSL_read(ssl, &c, 1) == -1 && ERR_GET_REASON(ERR_get_error()) == SSL_R_UNINITIALIZED);
		must(SSL_write(ssl, "x", 1) == -1 && ERR_GET_REASON(ERR_get_error()) == SSL_R_UNINITIALIZED);
	}
	puts("each to its own");
	SSL_free(ssl);
	SSL_CTX_free(context);
	return 0;
}
