import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** usage: Rtt PORT N: N requests one after another on a kept connection; their mean in ms, and the share of a processor in percent. */
class Rtt {
	static void ask(HttpClient client, int port) throws Exception {
		client.send(HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/")).build(), HttpResponse.BodyHandlers.ofByteArray());
	}

	public static void main(String[] args) throws Exception {
		int port = Integer.parseInt(args[0]), n = Integer.parseInt(args[1]);
		HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
		for (int i = 0; i < 3; i++)
			ask(client, port);
		long begun = System.nanoTime();
		java.time.Duration cpu = ProcessHandle.current().info().totalCpuDuration().get();
		for (int i = 0; i < n; i++)
			ask(client, port);
		double ms = (System.nanoTime() - begun) / 1e6;
		double used = ProcessHandle.current().info().totalCpuDuration().get().minus(cpu).toMillis();
		System.out.printf("%.1f %.1f%n", ms / n, used / ms * 100);
	}
}
