import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;

/**
 * GETs one after another: Fetch HttpClient|HttpURLConnection HOST PORT [TIMES [https]]. Exit codes as of fetch.py; of several calls 0 where one
 * was good, else 3 where one was short.
 */
class Fetch {
	public static void main(String[] args) throws Exception {
		int times = args.length > 3 ? Integer.parseInt(args[3]) : 1, worst = 1;

		String scheme = args.length > 4 ? args[4] : "http";

		if (scheme.equals("https"))
			warmUp(args[1]);
		for (int i = 0; i < times; i++) {
			int code = call(args[0], URI.create(scheme + "://" + args[1] + ":" + args[2] + "/"));

			if (worst != 0 && code != 1)
				worst = code;
		}
		System.exit(worst);
	}

	/** A first ClientHello takes java up to a second: none of a server's. */
	static void warmUp(String host) throws Exception {
		SSLEngine engine = SSLContext.getDefault().createSSLEngine(host, 443);

		engine.setUseClientMode(true);
		engine.wrap(ByteBuffer.allocate(0), ByteBuffer.allocate(engine.getSession().getPacketBufferSize()));
	}

	static int call(String kind, URI uri) {
		try {
			return kind.equals("HttpClient") ? client(uri) : connection(uri);
		} catch (Exception e) {
			System.err.println(e);
			return 1;
		}
	}

	static int code(int status, long promised, long came) {
		return status >= 400 ? 1 : promised == came ? 0 : 3;
	}

	static HttpClient client;

	static int client(URI uri) throws Exception {
		if (client == null)
			client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
		HttpResponse<byte[]> answer = client.send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofByteArray());

		return code(answer.statusCode(), answer.headers().firstValueAsLong("content-length").orElse(-1), answer.body().length);
	}

	static int connection(URI uri) throws Exception {
		HttpURLConnection connection = (HttpURLConnection) uri.toURL().openConnection();

		try (InputStream body = connection.getInputStream()) {
			ByteArrayOutputStream bytes = new ByteArrayOutputStream();

			body.transferTo(bytes);
			return code(connection.getResponseCode(), connection.getContentLengthLong(), bytes.size());
		}
	}
}
