// ring-helm: what `helm template` renders, by Helm's own packages (loader, values, schema, engine), as JSON. The whole
// of Helm takes five minutes of CPU to compile; these, pinned by go.mod to the versions that the ring's Kubernetes is
// built of and built after it, half of one.
//
// usage: ring-helm template CHART KUBERNETES-VERSION [KEY=VALUE…]     (values as with --set)
//
//	ring-helm objects FILE…                                    (the objects of plain manifests)
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

var separator = regexp.MustCompile(`(?m)^---[ \t]*$`)

// objects: the documents of a manifest that are not empty.
func objects(name, text string) ([]any, error) {
	var found []any
	for _, document := range separator.Split(text, -1) {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(object) > 0 {
			found = append(found, object)
		}
	}
	return found, nil
}

func template(folder, version string, settings []string) ([]any, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	given := map[string]any{}
	for _, setting := range settings {
		if err := strvals.ParseInto(setting, given); err != nil {
			return nil, err
		}
	}
	capabilities := *chartutil.DefaultCapabilities
	kube, err := chartutil.ParseKubeVersion(version)
	if err != nil {
		return nil, err
	}
	capabilities.KubeVersion = *kube
	if !chartutil.IsCompatibleRange(chart.Metadata.KubeVersion, version) {
		return nil, fmt.Errorf("chart requires kubeVersion %s", chart.Metadata.KubeVersion)
	}
	values, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "carve", Namespace: "default"},
		&capabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(chart, values)
	if err != nil {
		return nil, err
	}
	var found []any
	for name, text := range rendered {
		some, err := objects(name, text)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

func run(words []string) ([]any, error) {
	if len(words) >= 3 && words[0] == "template" {
		return template(words[1], words[2], words[3:])
	}
	if len(words) >= 1 && words[0] == "objects" {
		var found []any
		for _, path := range words[1:] {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			some, err := objects(path, string(text))
			if err != nil {
				return nil, err
			}
			found = append(found, some...)
		}
		return found, nil
	}
	return nil, errors.New("usage: ring-helm template CHART KUBERNETES-VERSION [KEY=VALUE…] | objects FILE…")
}

func main() {
	log.SetOutput(io.Discard) // the loader tells of each link in the chart
	found, err := run(os.Args[1:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
