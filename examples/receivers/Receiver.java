// Receives webhooks, with Java 17 and Jackson: PORT=8080 WEBHOOK_SECRET=whsec_… java -cp '/usr/share/java/*' Receiver.java
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Executors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public class Receiver {
    private static final String SECRET = System.getenv().getOrDefault("WEBHOOK_SECRET", "");

    /** Larger than any delivery, in bytes. */
    private static final int BODY_MAX = 2_000_000;

    /** Time limit for a sender's headers and body, in seconds. */
    private static final String READ_TIMEOUT = "10";

    private static final ObjectMapper JSON = new ObjectMapper();

    /** The ids of processed events. Keep yours in your database, under a unique key. */
    private static final Set<String> DONE = new HashSet<>();

    public static void main(String[] args) throws IOException {
        if (SECRET.isEmpty()) throw new IllegalStateException("WEBHOOK_SECRET is not set");
        System.setProperty("sun.net.httpserver.maxReqTime", READ_TIMEOUT);
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "8080"));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", Receiver::handle);
        server.start();
    }

    private static void handle(HttpExchange exchange) throws IOException {
        try (exchange) {
            int status;
            try {
                status = receive(exchange);
            } catch (IOException | GeneralSecurityException error) {
                System.err.println(error);
                status = 500; // The event is sent again later.
            }
            exchange.sendResponseHeaders(status, -1);
        }
    }

    private static int receive(HttpExchange exchange) throws IOException, GeneralSecurityException {
        byte[] body = exchange.getRequestBody().readNBytes(BODY_MAX + 1);
        if (body.length > BODY_MAX) return 413;
        String header = exchange.getRequestHeaders().getFirst("X-Service-Signature");
        if (!isGenuine(header == null ? "" : header, body)) return 401;
        if (exchange.getRequestHeaders().containsKey("X-Service-Test")) return 204; // Its record is invented.
        JsonNode event = JSON.readTree(body);
        synchronized (DONE) {
            String id = event.get("id").asText();
            if (!DONE.contains(id)) {
                work(event);
                DONE.add(id); // After the work: a crash repeats it instead of losing it.
            }
        }
        return 204;
    }

    /** Whether the header signs exactly these bytes, with a timestamp within 5 minutes of now. */
    static boolean isGenuine(String header, byte[] body) throws GeneralSecurityException {
        List<String[]> fields =
            Arrays.stream(header.split(",")).map(field -> field.split("=", 2)).filter(field -> field.length == 2).toList();
        String time =
            fields.stream().filter(field -> field[0].equals("t")).map(field -> field[1]).findFirst().orElse("");
        if (!time.matches("[0-9]{1,12}")) return false;
        long age = Instant.now().getEpochSecond() - Long.parseLong(time);
        if (Math.abs(age) > 300) {
            System.err.println("rejected: the timestamp is " + age + " s old; is this server's clock right?");
            return false;
        }
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(SECRET.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
        mac.update((time + ".").getBytes(StandardCharsets.UTF_8));
        byte[] expected = HexFormat.of().formatHex(mac.doFinal(body)).getBytes(StandardCharsets.UTF_8);
        return fields.stream()
            .filter(field -> field[0].equals("v1"))
            .anyMatch(field -> MessageDigest.isEqual(field[1].getBytes(StandardCharsets.UTF_8), expected));
    }

    private static void work(JsonNode event) {
        System.out.println(event.get("type").asText() + " " + event.get("id").asText());
    }
}
