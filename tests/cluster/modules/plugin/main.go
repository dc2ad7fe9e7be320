// ring-plugin: a device plugin that answers every Allocate with one CDI name, so that the ring's own way from the
// kubelet to containerd's CDI is tested with a hand-written CDI file and nothing of Carve.
//
// usage: ring-plugin RESOURCE COUNT CDI-NAME
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	count int
	name  string
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	var answer api.ListAndWatchResponse
	for i := range p.count {
		answer.Devices = append(answer.Devices, &api.Device{ID: fmt.Sprintf("thing-%d", i), Health: api.Healthy})
	}
	if err := stream.Send(&answer); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	var answer api.AllocateResponse
	for range request.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			CdiDevices: []*api.CDIDevice{{Name: p.name}}})
	}
	return &answer, nil
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: ring-plugin RESOURCE COUNT CDI-NAME")
	}
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatalf("COUNT %q: %v", os.Args[2], err)
	}
	const endpoint = "ring-plugin.sock"
	path := api.DevicePluginPath + endpoint
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &plugin{count: count, name: os.Args[3]})
	go func() { log.Fatal(server.Serve(listener)) }()

	kubelet, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	_, err = api.NewRegistrationClient(kubelet).Register(context.Background(),
		&api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: os.Args[1]})
	if err != nil {
		log.Fatal(err)
	}
	select {}
}
