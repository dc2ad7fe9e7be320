{{- /* Applies the values to the objects of the bundle. Each template changes the object it gets and prints nothing. */ -}}

{{- /* The kubelet plugins. `doors` is the earlier name of the value. */ -}}
{{- define "carve.plugins" -}}
{{- .Values.doors | default .Values.plugins -}}
{{- end -}}

{{- /* Refuses values that are legal one by one but contradict each other. */ -}}
{{- define "carve.check" -}}
{{- if and .Values.control.enabled (eq .Values.scheduler.mode "own") (not .Values.scheduler.image) -}}
{{- fail "scheduler.image is required with scheduler.mode = own: set it to your control plane's own kube-scheduler image (values.yaml shows the command to find it)" -}}
{{- end -}}
{{- $plugins := include "carve.plugins" . -}}
{{- if and (not .Values.control.enabled) (ne $plugins "dra") (ne $plugins "slots") -}}
{{- fail (printf "plugins = %s with control.enabled = false: without control only plugins = dra is served; set plugins = dra, or control.enabled = true" $plugins) -}}
{{- end -}}
{{- $nvidia := toString .Values.dialects.nvidia -}}
{{- if and .Values.control.enabled (has $nvidia (list "slots" "dra")) (not (has $nvidia (splitList "," $plugins))) -}}
{{- fail (printf "dialects.nvidia = %s is not among plugins = %s; add it to plugins, or set dialects.nvidia to one of the plugins or to off" $nvidia $plugins) -}}
{{- end -}}
{{- end -}}

{{- /* The files, as a list of patterns. Of two objects with the same name the later one counts. */ -}}
{{- define "carve.files" -}}
- bundle/crds/*.yaml
- bundle/base/*.yaml
{{- if .Values.control.enabled }}
- bundle/control/*.yaml
{{- if eq .Values.scheduler.mode "own" }}
- bundle/control/scheduler/*.yaml
{{- else }}
- bundle/control/scheduler/default/*.yaml
{{- end }}
{{- if eq (toString .Values.dialects.nvidia) "dra" }}
- bundle/base/device-classes.yaml
{{- end }}
{{- end }}
{{- end -}}

{{- define "carve.leftOut" -}}
{{- $kind := .object.kind -}}
{{- if and (eq $kind "Namespace") (not .Values.namespace.create) }}yes{{ end -}}
{{- if and (eq $kind "PodDisruptionBudget") (lt (int .Values.control.replicas) 2) }}yes{{ end -}}
{{- end -}}

{{- /* Images, replicas, node selectors. */ -}}
{{- define "carve.workload" -}}
{{- $object := .object -}}
{{- if has $object.kind (list "Deployment" "DaemonSet") -}}
{{- $name := $object.metadata.name -}}
{{- $pod := $object.spec.template.spec -}}
{{- range $container := $pod.containers -}}
{{- if eq $name "carve-scheduler" -}}
{{- $_ := set $container "image" $.Values.scheduler.image -}}
{{- else -}}
{{- $_ := set $container "image" $.Values.image -}}
{{- end -}}
{{- $_ := set $container "imagePullPolicy" $.Values.imagePullPolicy -}}
{{- if and (eq $name "carve-control") (ne $.Values.namespace.name "carve-system") -}}
{{- $_ := set $container "args" (append $container.args (printf "--namespace=%s" $.Values.namespace.name)) -}}
{{- end -}}
{{- end -}}
{{- if .Values.imagePullSecrets -}}
{{- $secrets := list -}}
{{- range .Values.imagePullSecrets }}{{ $secrets = append $secrets (dict "name" .) }}{{ end -}}
{{- $_ := set $pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- if eq $name "carve-control" }}{{ $_ := set $object.spec "replicas" .Values.control.replicas }}{{ end -}}
{{- if eq $name "carve-scheduler" }}{{ $_ := set $object.spec "replicas" .Values.scheduler.replicas }}{{ end -}}
{{- if has $name (list "carve-agent" "carve-arbiter") -}}
{{- $_ := set $pod "nodeSelector" (merge (dict) .Values.agent.nodeSelector $pod.nodeSelector) -}}
{{- end -}}
{{- else if and (eq $object.kind "ConfigMap") (eq $object.metadata.name "carve-scheduler") -}}
{{- $line := "percentageOfNodesToScore: 100" -}}
{{- $config := index $object.data "scheduler.yaml" -}}
{{- if not (contains $line $config) }}{{ fail (printf "bundle/control/scheduler/scheduler.yaml: no line %s" $line) }}{{ end -}}
{{- $said := printf "percentageOfNodesToScore: %s" (toString .Values.scheduler.percentageOfNodesToScore) -}}
{{- $_ := set $object.data "scheduler.yaml" (replace $line $said $config) -}}
{{- end -}}
{{- end -}}

{{- /* kube-scheduler reads its configuration only at its start, so a changed text must change the pod. Runs after all other
       changes of the text. */ -}}
{{- define "carve.restarts" -}}
{{- $config := get .objects (printf "ConfigMap/%s/carve-scheduler" .root.Values.namespace.name) -}}
{{- $scheduler := get .objects (printf "Deployment/%s/carve-scheduler" .root.Values.namespace.name) -}}
{{- if $scheduler -}}
{{- $meta := $scheduler.spec.template.metadata -}}
{{- $said := dict "elasticgpu.io/configuration" (index $config.data "scheduler.yaml" | sha256sum) -}}
{{- $_ := set $meta "annotations" (merge (dict) $said (default dict $meta.annotations)) -}}
{{- end -}}
{{- end -}}

{{- /* Removes nvidia.com/gpu and HAMi's names beside it from admission and the scheduler unless slots serve it, and from the DeviceClass if it is off. */ -}}
{{- define "carve.nvidia" -}}
{{- $object := .object -}}
{{- if and (has (toString .Values.dialects.nvidia) (list "off" "false")) (eq $object.kind "DeviceClass") -}}
{{- $_ := unset $object.spec "extendedResourceName" -}}
{{- end -}}
{{- if ne (toString .Values.dialects.nvidia) "slots" -}}
{{- if has $object.kind (list "MutatingWebhookConfiguration" "ValidatingWebhookConfiguration") -}}
{{- range $hook := $object.webhooks -}}
{{- range $condition := $hook.matchConditions -}}
{{- $without := regexReplaceAll "'nvidia[.]com/(gpu|gpumem|gpumem-percentage|gpucores|priority)', *" $condition.expression "" -}}
{{- if contains "'nvidia.com/gpu" $without }}{{ fail "bundle/control/webhook.yaml names nvidia.com/gpu in another way" }}{{ end -}}
{{- $_ := set $condition "expression" $without -}}
{{- end -}}
{{- end -}}
{{- else if and (eq $object.kind "ConfigMap") (eq $object.metadata.name "carve-scheduler") -}}
{{- $config := index $object.data "scheduler.yaml" -}}
{{- $without := regexReplaceAll "(?m)^ *- nvidia[.]com/(gpu|gpumem|gpumem-percentage|gpucores|priority)\n" $config "" -}}
{{- if contains "nvidia.com/gpu" $without }}{{ fail "bundle/control/scheduler/scheduler.yaml names nvidia.com/gpu in another way" }}{{ end -}}
{{- $_ := set $object.data "scheduler.yaml" $without -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Writes the values into the lines of cluster.conf, and creates carve.conf if there are settings. */ -}}
{{- define "carve.settings" -}}
{{- $values := .root.Values -}}
{{- $space := $values.namespace.name -}}
{{- if $values.control.enabled -}}
{{- $map := get .objects (printf "ConfigMap/%s/carve-cluster" $space) -}}
{{- $text := index $map.data "cluster.conf" -}}
{{- $nvidia := toString $values.dialects.nvidia | replace "false" "off" -}}
{{- $scheduler := ternary "carve-scheduler" "default-scheduler" (eq $values.scheduler.mode "own") -}}
{{- $lines := dict "plugins" (include "carve.plugins" .root) "dialects.nvidia" $nvidia "dialects.gpushare-unit" $values.dialects.gpushareUnit
    "dialects.hami" (ternary "on" "off" $values.dialects.hami) "dialects.cgpu-policy" $values.dialects.cgpuPolicy
    "dialects.qgpu-policy" $values.dialects.qgpuPolicy "dialects.volcano-factor" $values.dialects.volcanoFactor
    "dialects.deepomatic-containers" $values.dialects.deepomaticContainers
    "dialects.rancher-containers" $values.dialects.rancherContainers "dialects.gpushare-http" (ternary "on" "off" $values.dialects.gpushareHttp)
    "placement.policy" $values.placement.policy "scheduler.name" $scheduler
    "admission.visible-devices" $values.admission.visibleDevices -}}
{{- range $key, $value := $lines -}}
{{- $line := printf "(?m)^%s =.*$" (regexQuoteMeta $key) -}}
{{- if not (regexMatch $line $text) }}{{ fail (printf "bundle/control/cluster.yaml: no line for %s" $key) }}{{ end -}}
{{- $text = regexReplaceAllLiteral $line $text (printf "%s = %v" $key $value) -}}
{{- end -}}
{{- $_ := set $map.data "cluster.conf" $text -}}
{{- end -}}
{{- if $values.agent.settings -}}
{{- $text := "" -}}
{{- range $key, $value := $values.agent.settings }}{{ $text = printf "%s%s = %v\n" $text $key $value }}{{ end -}}
{{- $_ := set .objects (printf "ConfigMap/%s/carve-agent" $space) (dict "apiVersion" "v1" "kind" "ConfigMap"
    "metadata" (dict "name" "carve-agent" "namespace" $space) "data" (dict "carve.conf" $text)) -}}
{{- end -}}
{{- end -}}
