import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.MessageDigest;
import java.util.HexFormat;

class Client {
    public static void main(String[] args) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        client.send(HttpRequest.newBuilder(URI.create(args[0] + "/orders")).POST(BodyPublishers.ofString("{}")).build(), BodyHandlers.discarding());
        byte[] body = client.send(HttpRequest.newBuilder(URI.create(args[1])).build(), BodyHandlers.ofByteArray()).body();
        System.out.println(HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body)));
    }
}
