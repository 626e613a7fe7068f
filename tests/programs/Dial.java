import java.net.InetSocketAddress;
import java.net.Socket;

/** Connects once; says what went wrong, and exits with 1 then. */
class Dial {
	public static void main(String[] args) {
		try (Socket socket = new Socket()) {
			socket.connect(new InetSocketAddress(args[0], Integer.parseInt(args[1])));
		} catch (Exception e) {
			System.err.println(e);
			System.exit(1);
		}
	}
}
