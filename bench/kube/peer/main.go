// The measurements of bench_kube.cc over client-go, with the settings of its users and no limit of
// requests a second. Its typed clients ask for protobuf, which custom resources do not have: "list"
// asks for JSON, as we do, "list-protobuf" is their default. MB/s count the JSON text in both.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func report(count int, figures map[string]float64) {
	line := map[string]any{"sent": count, "received": count, "disordered": 0}
	for name, value := range figures {
		line[name] = value
	}
	text, err := json.Marshal(line)
	check(err)
	fmt.Println(string(text))
}

func configMap(number int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("g%d-%d", os.Getpid(), number)},
		Data:       map[string]string{"k": strings.Repeat("x", 200)},
	}
}

// Runs one COUNT times, so many at once, and returns the seconds it took.
func many(connections, count int, one func(number int)) float64 {
	start := time.Now()
	numbers := make(chan int)
	var workers sync.WaitGroup
	for i := 0; i < connections; i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for number := range numbers {
				one(number)
			}
		}()
	}
	for number := 0; number < count; number++ {
		numbers <- number
	}
	close(numbers)
	workers.Wait()
	return time.Since(start).Seconds()
}

func residentKB() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	check(err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	check(err)
	return float64(pages * os.Getpagesize() / 1024)
}

func cpuMS() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return 1000 * (time.Duration(usage.Utime.Nano()) + time.Duration(usage.Stime.Nano())).Seconds()
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: peer MODE NAMESPACE CONNECTIONS COUNT")
		os.Exit(2)
	}
	mode, space := os.Args[1], os.Args[2]
	connections, err := strconv.Atoi(os.Args[3])
	check(err)
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	check(err)
	config.QPS, config.Burst = -1, -1
	if mode == "list" {
		config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	}
	client, err := kubernetes.NewForConfig(config)
	check(err)
	ctx := context.Background()
	maps, pods := client.CoreV1().ConfigMaps(space), client.CoreV1().Pods(space)

	switch mode {
	case "create":
		seconds := many(connections, count, func(number int) {
			_, err := maps.Create(ctx, configMap(number), metav1.CreateOptions{})
			check(err)
		})
		report(count, map[string]float64{"per_s": float64(count) / seconds})
	case "get":
		seconds := many(connections, count, func(int) {
			_, err := pods.Get(ctx, "pod-0", metav1.GetOptions{})
			check(err)
		})
		report(count, map[string]float64{"per_s": float64(count) / seconds})
	case "list", "list-protobuf":
		raw, err := client.CoreV1().RESTClient().Get().Namespace(space).Resource("pods").DoRaw(ctx)
		check(err)
		seconds := many(connections, count, func(int) {
			_, err := pods.List(ctx, metav1.ListOptions{})
			check(err)
		})
		report(count, map[string]float64{"mb_per_s": 1e-6 * float64(len(raw)*count) / seconds})
	case "informer":
		start := time.Now()
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(space))
		informer := factory.Core().V1().Pods().Informer()
		check(informer.SetTransform(func(object any) (any, error) {
			if pod, ok := object.(*corev1.Pod); ok {
				pod.ManagedFields = nil
			}
			return object, nil
		}))
		factory.Start(ctx.Done())
		cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
		figures := map[string]float64{"ms": 1000 * time.Since(start).Seconds(), "rss_kb": residentKB(), "cpu_ms": cpuMS()}
		if size := len(informer.GetStore().List()); size != count {
			check(fmt.Errorf("%d of %d pods cached", size, count))
		}
		report(count, figures)
	case "latency":
		heard := make(chan string, count)
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(space))
		informer := factory.Core().V1().ConfigMaps().Informer()
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
			if name := object.(*corev1.ConfigMap).Name; strings.HasPrefix(name, fmt.Sprintf("g%d-", os.Getpid())) {
				heard <- name
			}
		}})
		check(err)
		factory.Start(ctx.Done())
		cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
		times := make([]float64, count)
		for number := range times {
			start := time.Now()
			_, err := maps.Create(ctx, configMap(number), metav1.CreateOptions{})
			check(err)
			<-heard
			times[number] = 1e6 * time.Since(start).Seconds()
		}
		sort.Float64s(times)
		report(count, map[string]float64{"p50_us": times[count/2], "p99_us": times[count*99/100]})
	default:
		fmt.Fprintln(os.Stderr, "peer: no such mode:", mode)
		os.Exit(2)
	}
}
