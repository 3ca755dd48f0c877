package bench;

import com.google.common.util.concurrent.RateLimiter;
import io.github.bucket4j.Bandwidth;
import io.github.bucket4j.Bucket;
import io.github.resilience4j.ratelimiter.RateLimiterConfig;
import io.github.resilience4j.ratelimiter.internal.AtomicRateLimiter;
import io.github.resilience4j.ratelimiter.internal.SemaphoreBasedRateLimiter;
import java.time.Duration;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/** One permit, granted or refused at once, by the limiters that Java programs use. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class Limiters {
  /** A limit that no measurement reaches, permits a second. */
  private static final int PLENTY = 1_000_000_000;

  private final AtomicLong counter = new AtomicLong();
  private final ScheduledExecutorService refresher = Executors.newSingleThreadScheduledExecutor();

  private final RateLimiter guava = RateLimiter.create(PLENTY);
  private final RateLimiter guavaSpent = RateLimiter.create(0.001);
  private final Bucket bucket = bucket(PLENTY, Duration.ofSeconds(1));
  private final Bucket bucketSpent = bucket(1, Duration.ofHours(1));
  private final AtomicRateLimiter atomic = new AtomicRateLimiter("a", config(PLENTY, Duration.ofSeconds(1)));
  private final AtomicRateLimiter atomicSpent = new AtomicRateLimiter("b", config(1, Duration.ofHours(1)));
  private final SemaphoreBasedRateLimiter semaphore =
      new SemaphoreBasedRateLimiter("c", config(PLENTY, Duration.ofSeconds(1)), refresher);
  private final SemaphoreBasedRateLimiter semaphoreSpent =
      new SemaphoreBasedRateLimiter("d", config(1, Duration.ofHours(1)), refresher);

  private static Bucket bucket(long permits, Duration period) {
    return Bucket.builder()
        .addLimit(Bandwidth.builder().capacity(permits).refillIntervally(permits, period).build())
        .build();
  }

  private static RateLimiterConfig config(int permits, Duration period) {
    return RateLimiterConfig.custom()
        .limitForPeriod(permits).limitRefreshPeriod(period).timeoutDuration(Duration.ZERO).build();
  }

  @Setup
  public void spend() {
    guavaSpent.tryAcquire();
    bucketSpent.tryConsume(1);
    atomicSpent.acquirePermission();
    semaphoreSpent.acquirePermission();
  }

  @TearDown
  public void stop() {
    refresher.shutdownNow();
  }

  @Benchmark public long floorNanoTimeAndAdd() { return counter.addAndGet(System.nanoTime() & 1); }

  @Benchmark public boolean grantedGuava() { return guava.tryAcquire(); }

  @Benchmark public boolean grantedBucket4j() { return bucket.tryConsume(1); }

  @Benchmark public boolean grantedResilience4jAtomic() { return atomic.acquirePermission(); }

  @Benchmark public boolean grantedResilience4jSemaphore() { return semaphore.acquirePermission(); }

  @Benchmark public boolean refusedGuava() { return guavaSpent.tryAcquire(); }

  @Benchmark public boolean refusedBucket4j() { return bucketSpent.tryConsume(1); }

  @Benchmark public boolean refusedResilience4jAtomic() { return atomicSpent.acquirePermission(); }

  @Benchmark public boolean refusedResilience4jSemaphore() { return semaphoreSpent.acquirePermission(); }
}
