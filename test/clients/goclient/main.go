// SPDX-License-Identifier: Apache-2.0

// Command goclient is an ordinary program in Go: it uses net/http and grpc-go as everybody does, with no proxy and no roots of
// its own.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, what, to string) error {
	switch what {
	case "http":
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader("from go"))
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		fmt.Println(resp.Proto, resp.Status, string(body), resp.Trailer.Get("X-Sum"))
		return err
	case "grpc":
		return overGRPC(ctx, to)
	case "lookup":
		begin := time.Now()
		addrs, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, to)
		if d := time.Since(begin); d > 3*time.Second {
			return fmt.Errorf("it took %v", d)
		}
		fmt.Println(strings.Join(addrs, " "))
		return err
	case "serve": // HTTPS in the cell, with the certificate and key of that file
		return http.ListenAndServeTLS(to, os.Args[3], os.Args[3], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		}))
	}
	return fmt.Errorf("there is no %s", what)
}

// overGRPC makes a call with one answer, one with several, and one that fails.
func overGRPC(ctx context.Context, to string) error {
	conn, err := grpc.NewClient(to, grpc.WithTransportCredentials(credentials.NewTLS(nil)))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	one, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "up"})
	if err != nil {
		return err
	}
	fmt.Println("check:", one.Status)
	stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "three"})
	if err != nil {
		return err
	}
	for {
		some, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		fmt.Println("watch:", some.Status)
	}
	fmt.Println("trailer:", stream.Trailer().Get("x-sum"))
	_, err = client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "none"}) // the answer is trailers alone
	fmt.Println("fails:", err)
	return nil
}
