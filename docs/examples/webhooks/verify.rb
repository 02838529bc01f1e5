# Says whether a captured webhook delivery is ForgeRun's, by the webhook's secret.
# The body is read from standard input as it was received, the three headers and
# the secret from the environment. Exit code 0 and "ok", or 1 and the reason.
require "openssl"

MAX_AGE = 300 # seconds

def verify(id, timestamp, signatures, body, secret, now)
  raise "the timestamp is too old or in the future" if (now - Integer(timestamp, 10)).abs > MAX_AGE
  key = secret.delete_prefix("whsec_").unpack1("m0")
  wanted = "v1," + [OpenSSL::HMAC.digest("SHA256", key, "#{id}.#{timestamp}.#{body}")].pack("m0")
  return if signatures.split(" ").any? { |given| OpenSSL.secure_compare(given, wanted) }
  raise "no signature matches the secret"
end

begin
  verify(ENV["WEBHOOK_ID"].to_s, ENV["WEBHOOK_TIMESTAMP"].to_s, ENV["WEBHOOK_SIGNATURE"].to_s,
         $stdin.binmode.read, ENV.fetch("WEBHOOK_SECRET"), Time.now.to_i)
  puts "ok"
rescue => e
  puts e.message
  exit 1
end
