using System.Security.Cryptography;
using System.Text;

// Says whether a captured webhook delivery is ForgeRun's, by the webhook's secret.
// The body is read from standard input as it was received, the three headers and
// the secret from the environment. Exit code 0 and "ok", or 1 and the reason.
static class Verify
{
    const long MaxAge = 300; // seconds

    static void Check(string id, string timestamp, string signatures, byte[] body, string secret, long now)
    {
        if (Math.Abs(now - long.Parse(timestamp)) > MaxAge)
            throw new CryptographicException("the timestamp is too old or in the future");
        byte[] key = Convert.FromBase64String(secret.StartsWith("whsec_") ? secret[6..] : secret);
        byte[] signed = [.. Encoding.UTF8.GetBytes($"{id}.{timestamp}."), .. body];
        byte[] wanted = Encoding.UTF8.GetBytes("v1," + Convert.ToBase64String(HMACSHA256.HashData(key, signed)));
        foreach (string given in signatures.Split(' '))
            if (CryptographicOperations.FixedTimeEquals(wanted, Encoding.UTF8.GetBytes(given)))
                return;
        throw new CryptographicException("no signature matches the secret");
    }

    static int Main()
    {
        string Env(string name) => Environment.GetEnvironmentVariable(name) ?? "";
        var body = new MemoryStream();
        Console.OpenStandardInput().CopyTo(body);
        try
        {
            Check(Env("WEBHOOK_ID"), Env("WEBHOOK_TIMESTAMP"), Env("WEBHOOK_SIGNATURE"), body.ToArray(), Env("WEBHOOK_SECRET"),
                DateTimeOffset.UtcNow.ToUnixTimeSeconds());
            Console.WriteLine("ok");
            return 0;
        }
        catch (Exception e)
        {
            Console.WriteLine(e.Message);
            return 1;
        }
    }
}
