package bench;

import com.google.common.util.concurrent.RateLimiter;
import io.github.bucket4j.Bandwidth;
import io.github.bucket4j.Bucket;
import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.TokensInheritanceStrategy;
import io.github.resilience4j.ratelimiter.RateLimiterConfig;
import io.github.resilience4j.ratelimiter.internal.AtomicRateLimiter;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.time.Instant;
import java.util.function.BooleanSupplier;
import java.util.function.IntConsumer;

/** A process of the command overshoot, by the protocol of its caller.go: peer, permits a second. */
public final class Caller {
  private static volatile double rate;

  private static FileOutputStream out;
  private static final ByteBuffer stamp = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);

  private record Limiter(BooleanSupplier call, IntConsumer set) {}

  private static Limiter open(String peer, int permits) {
    return switch (peer) {
      case "Guava" -> {
        RateLimiter l = RateLimiter.create(permits);
        yield new Limiter(l::tryAcquire, l::setRate);
      }
      case "Bucket4j" -> {
        Bucket b = Bucket.builder().addLimit(bandwidth(permits)).build();
        yield new Limiter(
            () -> b.tryConsume(1),
            n ->
                b.replaceConfiguration(
                    BucketConfiguration.builder().addLimit(bandwidth(n)).build(),
                    TokensInheritanceStrategy.PROPORTIONALLY));
      }
      case "Resilience4j" -> {
        AtomicRateLimiter l =
            new AtomicRateLimiter(
                "a",
                RateLimiterConfig.custom()
                    .limitForPeriod(permits)
                    .limitRefreshPeriod(Duration.ofSeconds(1))
                    .timeoutDuration(Duration.ZERO)
                    .build());
        yield new Limiter(l::acquirePermission, l::changeLimitForPeriod);
      }
      default -> throw new IllegalArgumentException(peer);
    };
  }

  private static Bandwidth bandwidth(int permits) {
    return Bandwidth.builder()
        .capacity(permits)
        .refillGreedy(permits, Duration.ofSeconds(1))
        .build();
  }

  private static void tell(long nanoseconds) throws IOException {
    out.write(stamp.putLong(0, nanoseconds).array());
  }

  public static void main(String[] args) throws Exception {
    out = new FileOutputStream(FileDescriptor.out);
    Limiter limiter = open(args[0], Integer.parseInt(args[1]));
    Thread orders =
        new Thread(
            () -> {
              BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
              try {
                for (String line; (line = in.readLine()) != null; ) {
                  String[] words = line.split(" ");
                  if (words[0].equals("load")) {
                    rate = Double.parseDouble(words[1]);
                  } else {
                    limiter.set().accept(Integer.parseInt(words[1]));
                  }
                }
              } catch (IOException e) {
                // the parent is gone
              }
              System.exit(0);
            });
    orders.start();
    tell(0);
    double owed = 0;
    for (long last = System.nanoTime(); ; ) {
      Thread.sleep(5);
      long now = System.nanoTime();
      owed += rate * Math.min(now - last, 100_000_000) / 1e9;
      last = now;
      for (; owed >= 1; owed--) {
        if (limiter.call().getAsBoolean()) {
          Instant at = Instant.now();
          tell(at.getEpochSecond() * 1_000_000_000 + at.getNano());
        }
      }
    }
  }
}
