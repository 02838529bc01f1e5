import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Instant;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

// Says whether a captured webhook delivery is ForgeRun's, by the webhook's secret.
// The body is read from standard input as it was received, the three headers and
// the secret from the environment. Exit code 0 and "ok", or 1 and the reason.
public class Verify {
    static final long MAX_AGE = 300; // seconds

    static void verify(String id, String timestamp, String signatures, byte[] body, String secret, long now) throws Exception {
        if (Math.abs(now - Long.parseLong(timestamp)) > MAX_AGE) {
            throw new SecurityException("the timestamp is too old or in the future");
        }
        byte[] key = Base64.getDecoder().decode(secret.replaceFirst("^whsec_", ""));
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.UTF_8));
        byte[] wanted = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(StandardCharsets.UTF_8);
        for (String given : signatures.split(" ")) {
            if (MessageDigest.isEqual(wanted, given.getBytes(StandardCharsets.UTF_8))) { // takes the same time for all
                return;
            }
        }
        throw new SecurityException("no signature matches the secret");
    }

    public static void main(String[] args) {
        var env = System.getenv();
        try {
            verify(env.getOrDefault("WEBHOOK_ID", ""), env.getOrDefault("WEBHOOK_TIMESTAMP", ""),
                env.getOrDefault("WEBHOOK_SIGNATURE", ""), System.in.readAllBytes(), env.getOrDefault("WEBHOOK_SECRET", ""),
                Instant.now().getEpochSecond());
            System.out.println("ok");
        } catch (Exception e) {
            System.out.println(e.getMessage());
            System.exit(1);
        }
    }
}
