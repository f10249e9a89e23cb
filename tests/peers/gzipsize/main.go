// gzipsize compresses files as kube-state-metrics compresses its responses (compress/gzip, default level) and prints
// for each: bytes, compressed bytes, milliseconds of CPU.
//
//	go run ./gzipsize FILE...
//
// The files are those that `cargo bench --bench gzip -- DIR` writes.
package main

import (
	"compress/gzip"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// counter counts what is written to it.
type counter int

func (c *counter) Write(bytes []byte) (int, error) {
	*c += counter(len(bytes))
	return len(bytes), nil
}

// used is the CPU time of the process so far.
func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func main() {
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}
		var size counter
		best := time.Duration(1 << 62)
		for range 3 {
			size = 0
			start := used()
			writer := gzip.NewWriter(&size)
			if _, err := writer.Write(text); err != nil {
				log.Fatal(err)
			}
			if err := writer.Close(); err != nil {
				log.Fatal(err)
			}
			best = min(best, used()-start)
		}
		fmt.Printf("%-24s %12d %10d %9.1f\n", filepath.Base(path), len(text), size, best.Seconds()*1e3)
	}
}
