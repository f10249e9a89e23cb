// Kindbench measures the time that kube-state-metrics needs to decode objects and to generate their metrics.
//
//	kindbench CASES OUT
//
// It reads the recorded objects of every kind (the files in the folders unit and fuzz of CASES) and prints a line for
// each kind: `resource objects decode-ns generate-ns`, mean nanoseconds for one object. Decoding starts from the
// protobuf message of a list; generating is the work of the exporter's store on the decoded object. The messages are
// written to OUT/RESOURCE.bin, each prefixed with its length in four bytes (little endian), so that other programs
// can be measured with the same bytes.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-state-metrics/v2/pkg/builder"
	generator "k8s.io/kube-state-metrics/v2/pkg/metric_generator"
	metricsstore "k8s.io/kube-state-metrics/v2/pkg/metrics_store"
	"k8s.io/kube-state-metrics/v2/pkg/options"
)

// message is the common interface of the generated API types.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// kind is the exporter's handling of one resource.
type kind struct {
	expected reflect.Type
	store    cache.Store
}

func (k kind) empty() message { return reflect.New(k.expected).Interface().(message) }

// all accepts every family.
type all struct{}

func (all) Test(generator.FamilyGenerator) bool { return true }

// kindOf gets the store of a resource from the exporter's builder.
func kindOf(resource string) (kind, error) {
	var found kind
	b := builder.NewBuilder()
	if err := b.WithEnabledResources([]string{resource}); err != nil {
		return found, err
	}
	b.WithNamespaces(options.DefaultNamespaces)
	b.WithContext(context.Background())
	b.WithFamilyGeneratorFilter(all{})
	b.WithGenerateStoresFunc(func(
		families []generator.FamilyGenerator,
		expected any,
		_ func(kubernetes.Interface, string, string) cache.ListerWatcher,
		_ bool,
		_ int64,
	) []cache.Store {
		found.expected = reflect.TypeOf(expected).Elem()
		found.store = metricsstore.NewMetricsStore(
			generator.ExtractMetricFamilyHeaders(families),
			generator.ComposeMetricGenFuncs(families),
		)
		return []cache.Store{found.store}
	})
	b.BuildStores()
	if found.store == nil {
		return found, fmt.Errorf("%s: the builder has made no store", resource)
	}
	return found, nil
}

// objects are the recorded objects by resource.
func objects(folder string) (map[string][]json.RawMessage, error) {
	var paths []string
	for _, cases := range []string{"unit", "fuzz"} {
		files, err := filepath.Glob(filepath.Join(folder, cases, "*.json"))
		if err != nil {
			return nil, err
		}
		paths = append(paths, files...)
	}
	found := map[string][]json.RawMessage{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var file struct {
			Resource string
			Cases    []struct{ Object json.RawMessage }
		}
		if err := json.Unmarshal(data, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, c := range file.Cases {
			found[file.Resource] = append(found[file.Resource], c.Object)
		}
	}
	return found, nil
}

func measure(resource string, recorded []json.RawMessage, out string) error {
	k, err := kindOf(resource)
	if err != nil {
		return err
	}
	var encoded [][]byte
	var decoded []message
	var file []byte
	for i, object := range recorded {
		typed := k.empty()
		if err := json.Unmarshal(object, typed); err != nil {
			// Some are invalid on purpose.
			fmt.Fprintf(os.Stderr, "%s, object %d is left out: %v\n", resource, i, err)
			continue
		}
		bytes, err := typed.Marshal()
		if err != nil {
			return fmt.Errorf("%s, object %d: %w", resource, i, err)
		}
		encoded = append(encoded, bytes)
		decoded = append(decoded, typed)
		file = binary.LittleEndian.AppendUint32(file, uint32(len(bytes)))
		file = append(file, bytes...)
	}
	if err := os.WriteFile(filepath.Join(out, resource+".bin"), file, 0o644); err != nil {
		return err
	}
	var failed error
	decode := perObject(len(encoded), func(i int) {
		if err := k.empty().Unmarshal(encoded[i]); err != nil {
			failed = err
		}
	})
	generate := perObject(len(decoded), func(i int) {
		if err := k.store.Add(decoded[i]); err != nil {
			failed = err
		}
	})
	fmt.Printf("%s %d %.0f %.0f\n", resource, len(encoded), decode, generate)
	return failed
}

// perObject is the mean time of one call in nanoseconds.
func perObject(objects int, call func(int)) float64 {
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			for i := range objects {
				call(i)
			}
		}
	})
	return float64(result.T.Nanoseconds()) / float64(result.N) / float64(objects)
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("usage: kindbench CASES OUT")
	}
	testing.Init()
	// Short, because there are many kinds.
	if err := flag.Set("test.benchtime", "100ms"); err != nil {
		return err
	}
	found, err := objects(os.Args[1])
	if err != nil {
		return err
	}
	for _, resource := range slices.Sorted(maps.Keys(found)) {
		if err := measure(resource, found[resource], os.Args[2]); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
