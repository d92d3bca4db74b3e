# Receives webhooks, with Ruby and the gem webrick: PORT=8080 WEBHOOK_SECRET=whsec_… ruby receiver.rb
require "json"
require "openssl"
require "timeout"
require "webrick"

$stdout.sync = true
SECRET = ENV.fetch("WEBHOOK_SECRET")

# Larger than any delivery, in bytes.
BODY_MAX = 2_000_000

# Time limit for a sender's headers, and for its body, in seconds.
READ_TIMEOUT = 10

# The ids of processed events. Keep yours in your database, under a unique key.
DONE = {}
ONE_AT_A_TIME = Mutex.new

class Receiver < WEBrick::HTTPServlet::AbstractServlet
  def do_POST(request, response)
    response.status = receive(request)
  rescue Timeout::Error
    response.status = 408
  ensure
    # What is left of a body that was not read to its end stays unread.
    response.keep_alive = false
  end

  def receive(request)
    body = String.new
    Timeout.timeout(READ_TIMEOUT) do
      request.body do |chunk|
        body << chunk
        return 413 if body.bytesize > BODY_MAX
      end
    end
    return 401 unless genuine?(request["X-Service-Signature"].to_s, body)

    return 204 if request["X-Service-Test"] # Its record is invented.

    event = JSON.parse(body)
    ONE_AT_A_TIME.synchronize do
      unless DONE[event["id"]]
        work(event)
        DONE[event["id"]] = true # After the work: a crash repeats it instead of losing it.
      end
    end
    204
  end

  # Whether the header signs exactly these bytes, with a timestamp within 5 minutes of now.
  def genuine?(header, body)
    fields = header.split(",").map { |field| field.split("=", 2) }
    time = fields.assoc("t")&.last.to_s
    return false unless time.match?(/\A[0-9]{1,12}\z/)

    age = Time.now.to_i - time.to_i
    if age.abs > 300
      warn "rejected: the timestamp is #{age} s old; is this server's clock right?"
      return false
    end

    expected = OpenSSL::HMAC.hexdigest("SHA256", SECRET, "#{time}.".b + body)
    fields.any? { |name, value| name == "v1" && OpenSSL.secure_compare(value.to_s, expected) }
  end

  def work(event)
    puts "#{event["type"]} #{event["id"]}"
  end
end

server = WEBrick::HTTPServer.new(
  BindAddress: "127.0.0.1",
  Port: ENV.fetch("PORT", "8080").to_i,
  RequestTimeout: READ_TIMEOUT,
  AccessLog: []
)
server.mount("/", Receiver)
trap("INT") { server.shutdown }
server.start
