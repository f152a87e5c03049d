package check

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/releaseutil"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	securityapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

const chart = deploy + "/helm/etl"

// kubeVersions are the oldest and the newest Kubernetes that the chart is rendered for.
var kubeVersions = []string{"v1.29.0", "v1.37.0"}

// render makes the chart's objects of the release data in the namespace etl-prod, from
// YAML of values. Each object is decoded strictly: a field that Kubernetes does not know,
// or a value of another type, is an error.
func render(t *testing.T, kube, values string) ([]runtime.Object, error) {
	t.Helper()
	c, err := loader.LoadDir(chart)
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	version, err := chartutil.ParseKubeVersion(kube)
	if err != nil {
		t.Fatal(err)
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	release := chartutil.ReleaseOptions{Name: "data", Namespace: "etl-prod", IsInstall: true}
	all, err := chartutil.ToRenderValues(c, given, release, caps)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	return decode(t, files), nil
}

func decode(t *testing.T, files map[string]string) []runtime.Object {
	t.Helper()
	if err := monitoring.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for _, doc := range releaseutil.SplitManifests(files[name]) {
			if object, _, err := decoder.Decode([]byte(doc), nil, nil); err != nil {
				t.Errorf("%s: %v\n%s", name, err, doc)
			} else {
				objects = append(objects, object)
			}
		}
	}
	return objects
}

// must renders values that are fine.
func must(t *testing.T, values string) []runtime.Object {
	t.Helper()
	objects, err := render(t, kubeVersions[1], values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// of returns the only object of a type.
func of[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if one, ok := o.(T); ok {
			found = append(found, one)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the chart has %d objects of %T, want one", len(found), *new(T))
	}
	return found[0]
}

// everything turns all of the chart on.
const everything = `
image: {digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
imagePullSecrets: [{name: pull}]
pipelines:
  orders: |
    pipeline: orders
    source: {kafka: {brokers: [kafka:9092], topics: [orders]}}
pipelineConfigMaps: [more-pipelines]
settings: {memory: 768MiB, log: {level: debug}}
env: [{name: KAFKA_BROKERS, value: "kafka:9092"}]
envFrom: [{secretRef: {name: kafka}}]
credentialsSecret: credentials
api: {port: 8443, tlsSecret: tls, tokensSecret: tokens, tokens: [{name: ops, role: admin}, {name: scrape, role: read}], hosts: [etl.example.com], metricsPublic: false}
persistence: {storageClassName: fast, annotations: {a: b}}
serviceAccount: {name: streams, annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/etl"}}
podDisruptionBudget: {maxUnavailable: 0}
networkPolicy:
  ingressFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]
serviceMonitor: {enabled: true, labels: {release: prometheus}, bearerTokenSecret: {name: scrape, key: token}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
grafanaDashboards: {enabled: true, annotations: {folder: Sluice}}
podAnnotations: {a: b}
podLabels: {team: data}
priorityClassName: high
nodeSelector: {disk: ssd}
tolerations: [{key: dedicated, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
extraVolumes: [{name: krb5, configMap: {name: krb5}}]
extraVolumeMounts: [{name: krb5, mountPath: /etc/krb5.conf, subPath: krb5.conf}]
`

// valueFiles are sets of values that must all work.
var valueFiles = map[string]string{
	"defaults":   "",
	"everything": everything,
	"no disk":    "persistence: {enabled: false}\npodDisruptionBudget: {enabled: false}\nserviceAccount: {create: false}\nnetworkPolicy: {enabled: false}",
	"stopped":    "replicas: 0",
}

func TestTheChartIsFineForHelmAndKubernetes(t *testing.T) {
	for name, values := range valueFiles {
		t.Run(name, func(t *testing.T) {
			given, err := chartutil.ReadValues([]byte(values))
			if err != nil {
				t.Fatal(err)
			}
			for _, kube := range kubeVersions {
				version, err := chartutil.ParseKubeVersion(kube)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range lint.AllWithKubeVersion(chart, given, "etl-prod", version).Messages {
					if !strings.Contains(m.Error(), "icon is recommended") {
						t.Errorf("%s: %v", kube, m)
					}
				}
				if _, err := render(t, kube, values); err != nil {
					t.Errorf("%s: %v", kube, err)
				}
			}
		})
	}
}

func TestPodsAreAllowedWhereOnlyRestrictedOnesAre(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := securityapi.LevelVersion{Level: securityapi.LevelRestricted, Version: securityapi.LatestVersion()}
	for name, values := range valueFiles {
		objects := must(t, values)
		set, test := of[*apps.StatefulSet](t, objects), of[*core.Pod](t, objects)
		for _, spec := range []*core.PodSpec{&set.Spec.Template.Spec, &test.Spec} {
			if r := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &set.ObjectMeta, spec)); !r.Allowed {
				t.Errorf("%s: %s", name, r.ForbiddenDetail())
			}
			if c := spec.Containers[0]; !*c.SecurityContext.ReadOnlyRootFilesystem || *spec.AutomountServiceAccountToken {
				t.Errorf("%s: %s may write its image, or talk to Kubernetes", name, c.Name)
			}
		}
	}
}

func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"replicas: 2", "replicas"},
		{"replicaCount: 1", "replicaCount"},
		{"pipelines: {orders: {pipeline: orders}}", "orders"},
		{"pipelines: {'a/b': 'pipeline: a'}", "a/b"},
		{"shutdownTimeoutSeconds: 0", "shutdownTimeoutSeconds"},
		{"api: {port: 80}", "port"},
		{"api: {tokens: [{name: ops, role: admin}]}", "tokensSecret"},
		{"api: {tokensSecret: t, tokens: [{name: ops, role: root}]}", "role"},
		{"podDisruptionBudget: {maxUnavailable: 50%}", "maxUnavailable"},
		{"image: {digest: latest}", "digest"},
	} {
		if _, err := render(t, kubeVersions[1], c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error about %s", c.values, err, c.want)
		}
	}
}

// settingsOf are the settings that the chart gives the program.
func settingsOf(t *testing.T, objects []runtime.Object) map[string]any {
	t.Helper()
	for _, o := range objects {
		if c, ok := o.(*core.ConfigMap); ok && c.Data["etl.yaml"] != "" {
			var settings map[string]any
			if err := yaml.Unmarshal([]byte(c.Data["etl.yaml"]), &settings); err != nil {
				t.Fatal(err)
			}
			return settings
		}
	}
	t.Fatal("the chart has no settings")
	return nil
}

func TestNobodyMayChangeAnythingUnlessItIsSaid(t *testing.T) {
	open, _ := settingsOf(t, must(t, ""))["http"].(map[string]any)
	if insecure, _ := open["insecure"].(bool); open["local_role"] != "read" || !insecure {
		t.Errorf("without tokens: %v", open)
	}
	closed, _ := settingsOf(t, must(t, everything))["http"].(map[string]any)
	if closed["local_role"] != nil || closed["insecure"] != nil || closed["cert_file"] == nil {
		t.Errorf("with tokens and certificates: %v", closed)
	}
	tokens, _ := closed["tokens"].([]any)
	if len(tokens) != 2 {
		t.Fatalf("tokens are %v", closed["tokens"])
	}
	if first, _ := tokens[0].(map[string]any); first["token_file"] != "/run/tokens/ops" || first["role"] != "admin" {
		t.Errorf("the first token is %v", first)
	}
}

func TestThePodHasTimeForItsLastCheckpoint(t *testing.T) {
	objects := must(t, "shutdownTimeoutSeconds: 300")
	if got := settingsOf(t, objects)["shutdown_timeout"]; got != "300s" {
		t.Errorf("shutdown_timeout is %v", got)
	}
	if got := *of[*apps.StatefulSet](t, objects).Spec.Template.Spec.TerminationGracePeriodSeconds; got <= 300 {
		t.Errorf("the pod is killed after %d s", got)
	}
}

func TestChangedPipelinesReachTheRunningPod(t *testing.T) {
	before := of[*apps.StatefulSet](t, must(t, "pipelines: {a: 'pipeline: a'}"))
	after := of[*apps.StatefulSet](t, must(t, "pipelines: {a: 'pipeline: a2'}"))
	if !reflect.DeepEqual(before.Spec, after.Spec) {
		t.Error("a changed pipeline starts a new pod")
	}
	for _, m := range after.Spec.Template.Spec.Containers[0].VolumeMounts {
		if m.Name == "pipelines" && m.SubPath != "" {
			t.Error("what is mounted by subPath is never replaced in a running pod")
		}
	}
	settings := of[*apps.StatefulSet](t, must(t, "settings: {memory: 1GiB}"))
	if reflect.DeepEqual(settings.Spec.Template, before.Spec.Template) {
		t.Error("changed settings start no new pod")
	}
}

func TestEverySecretThatIsNamedIsMountedForItsGroupAlone(t *testing.T) {
	set := of[*apps.StatefulSet](t, must(t, everything))
	mounted := map[string]bool{}
	for _, m := range set.Spec.Template.Spec.Containers[0].VolumeMounts {
		mounted[m.Name] = true
	}
	secrets := map[string]bool{}
	for _, v := range set.Spec.Template.Spec.Volumes {
		if !mounted[v.Name] {
			t.Errorf("the volume %s is not mounted", v.Name)
		}
		if v.Secret == nil {
			continue
		}
		secrets[v.Secret.SecretName] = true
		if mode := v.Secret.DefaultMode; mode == nil || *mode != 0o440 {
			t.Errorf("everybody in the container reads %s", v.Name)
		}
	}
	for _, want := range []string{"credentials", "tls", "tokens"} {
		if !secrets[want] {
			t.Errorf("the secret %s is not mounted", want)
		}
	}
}

func TestProbesAskTheRightPageInTheRightWay(t *testing.T) {
	for values, scheme := range map[string]core.URIScheme{"": core.URISchemeHTTP, everything: core.URISchemeHTTPS} {
		c := of[*apps.StatefulSet](t, must(t, values)).Spec.Template.Spec.Containers[0]
		for path, probe := range map[string]*core.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			if probe.HTTPGet.Path != path || probe.HTTPGet.Scheme != scheme || probe.HTTPGet.Port.String() != "api" {
				t.Errorf("the probe of %s asks %v", path, probe.HTTPGet)
			}
		}
		if c.StartupProbe.HTTPGet.Path != "/livez" {
			t.Error("a pipeline that cannot start must not end the pod")
		}
	}
}

func TestADrainIsAllowedUnlessItIsHeld(t *testing.T) {
	if b := of[*policyv1.PodDisruptionBudget](t, must(t, "")); b.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the node cannot be drained: %v", b.Spec)
	}
	if b := of[*policyv1.PodDisruptionBudget](t, must(t, everything)); b.Spec.MaxUnavailable.IntValue() != 0 {
		t.Errorf("the drain is not held: %v", b.Spec)
	}
}

// The chart cannot reach files beside it, so it has copies.
func TestTheChartHasTheAlertsAndDashboardsOfTheRepository(t *testing.T) {
	generated(t, chart+"/files/alerts.yaml", read(t, deploy+"/prometheus/alerts.yaml"))
	boards, err := filepath.Glob(deploy + "/grafana/*.json")
	if err != nil || len(boards) == 0 {
		t.Fatalf("find the dashboards: %v", err)
	}
	for _, board := range boards {
		generated(t, filepath.Join(chart, "files/dashboards", filepath.Base(board)), read(t, board))
	}
	objects := must(t, everything)
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict([]byte(read(t, deploy+"/prometheus/alerts.yaml")), &want); err != nil {
		t.Fatal(err)
	}
	if got := of[*monitoring.PrometheusRule](t, objects).Spec; !reflect.DeepEqual(got, want) {
		t.Errorf("the alerts of the chart are %v", got)
	}
	for _, board := range boards {
		if !hasFile(objects, filepath.Base(board), read(t, board)) {
			t.Errorf("the chart lacks %s", board)
		}
	}
}

func hasFile(objects []runtime.Object, name, text string) bool {
	for _, o := range objects {
		if c, ok := o.(*core.ConfigMap); ok && strings.TrimSpace(c.Data[name]) == strings.TrimSpace(text) {
			return true
		}
	}
	return false
}

// What the chart gives the program is kept in files, which a test of the program loads.
func TestTheSettingsOfTheChartAreThoseThatTheProgramLoads(t *testing.T) {
	for name, values := range map[string]string{"defaults": "", "everything": everything} {
		text, err := yaml.Marshal(settingsOf(t, must(t, values)))
		if err != nil {
			t.Fatal(err)
		}
		generated(t, filepath.Join(deploy, "helm/testdata", name+".yaml"), string(text))
	}
}
