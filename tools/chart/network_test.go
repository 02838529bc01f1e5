package chart_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestSelectorsFindTheirRole(t *testing.T) {
	eachSet(t, func(t *testing.T, set string, r release) {
		require.Len(t, of[*apps.Deployment](r), len(roles))
		for _, d := range of[*apps.Deployment](r) {
			r.requireSelects(t, d.Spec.Selector, role(d))
			for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
				r.requireSelects(t, spread.LabelSelector, role(d))
			}
		}
		budgets := of[*policy.PodDisruptionBudget](r)
		require.Len(t, budgets, map[string]int{"default": 3, "minimal": 0, "hpa": 2, "keda": 3}[set])
		for _, b := range budgets {
			r.requireSelects(t, b.Spec.Selector, role(b))
		}
		services := of[*core.Service](r)
		require.Len(t, services, 1+len(roles))
		for _, s := range services {
			of := role(s)
			if of == "" {
				of = "api" // the Service without a role is for clients, which call the api
			}
			r.requireSelects(t, &meta.LabelSelector{MatchLabels: s.Spec.Selector}, of)
			require.Len(t, s.Spec.Ports, 1)
			ports := r.pods(t)[of].Spec.Containers[0].Ports
			require.True(t, slices.ContainsFunc(ports, func(p core.ContainerPort) bool { return p.Name == s.Spec.Ports[0].TargetPort.String() }))
		}
		for _, i := range of[*networking.Ingress](r) {
			backend := i.Spec.Rules[0].HTTP.Paths[0].Backend.Service
			require.Contains(t, services, backend.Name)
			require.Empty(t, role(services[backend.Name]), "the ingress does not expose the admin listener")
			require.Equal(t, services[backend.Name].Spec.Ports[0].Name, backend.Port.Name)
			require.Equal(t, []networking.IngressTLS{{Hosts: []string{i.Spec.Rules[0].Host}, SecretName: "forgerun-tls"}}, i.Spec.TLS)
			require.Equal(t, "off", i.Annotations["nginx.ingress.kubernetes.io/proxy-buffering"])
		}
	})
}

type peersByPort map[int][]networking.NetworkPolicyPeer

func (w peersByPort) add(ports []networking.NetworkPolicyPort, peers []networking.NetworkPolicyPeer) {
	for _, p := range ports {
		w[p.Port.IntValue()] = append(w[p.Port.IntValue()], peers...)
	}
}

// If no policy selects a role's pods, their traffic is not limited. `in` and `out` then have no entry for the role.
func (r release) policies(t *testing.T) (in, out map[string]peersByPort) {
	t.Helper()
	in, out = map[string]peersByPort{}, map[string]peersByPort{}
	for _, p := range of[*networking.NetworkPolicy](r) {
		selector, err := meta.LabelSelectorAsSelector(&p.Spec.PodSelector)
		require.NoError(t, err)
		for role, pod := range r.pods(t) {
			if !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			if in[role] == nil {
				in[role], out[role] = peersByPort{}, peersByPort{}
			}
			for _, rule := range p.Spec.Ingress {
				in[role].add(rule.Ports, rule.From)
			}
			for _, rule := range p.Spec.Egress {
				require.NotEmpty(t, rule.Ports)
				out[role].add(rule.Ports, rule.To)
			}
			require.True(t, slices.Contains(p.Spec.PolicyTypes, networking.PolicyTypeIngress) || len(p.Spec.Ingress) == 0, p.Name)
			require.True(t, slices.Contains(p.Spec.PolicyTypes, networking.PolicyTypeEgress) || len(p.Spec.Egress) == 0, p.Name)
		}
	}
	return in, out
}

// Deliverers can reach the internet. So can api pods that ask webhook receivers for consent. No other pod can.
func TestPoliciesAllowTrafficThatARoleNeeds(t *testing.T) {
	eachSet(t, func(t *testing.T, set string, r release) {
		in, out := r.policies(t)
		if set == "default" || set == "minimal" {
			require.Empty(t, in)
			return
		}
		base := of[*networking.NetworkPolicy](r)[map[string]string{"hpa": "runner", "keda": "demo-forgerun"}[set]]
		require.Equal(t, []networking.PolicyType{networking.PolicyTypeIngress, networking.PolicyTypeEgress}, base.Spec.PolicyTypes)
		require.Empty(t, base.Spec.Ingress, "the base policy denies all traffic")
		r.requireSelects(t, &base.Spec.PodSelector, "api", "worker", "deliverer", "migrate")
		for role := range r.pods(t) {
			listeners := map[string][]int{"api": {8080, 8081}, "worker": {8081}, "deliverer": {8081}}[role]
			require.ElementsMatch(t, listeners, portsOf(in[role]), role)
			want := []int{53, 5432}
			if role != "migrate" {
				want = append(want, 6379, 4317, 4318)
			}
			toReceivers := role == "deliverer" || role == "api" && set == "keda"
			if toReceivers {
				want = append(want, 1) // first port of the range 1 to 65535
			}
			require.ElementsMatch(t, want, portsOf(out[role]), role)
			if toReceivers && set == "hpa" {
				require.Len(t, out[role][1], 2)
				require.Contains(t, out[role][1][0].IPBlock.Except, "169.254.0.0/16", "metadata service of clouds")
				require.Equal(t, []string{"fc00::/7", "fe80::/10"}, out[role][1][1].IPBlock.Except)
			}
			require.Equal(t, set == "hpa", len(out[role][5432]) == 1, "%s: access to Postgres only at its configured address", role)
		}
		require.NotEmpty(t, in["worker"][8081])
		require.Equal(t, set == "hpa", len(in["api"][8080]) == 1)
	})
}

func portsOf(w peersByPort) (ports []int) {
	for port := range w {
		ports = append(ports, port)
	}
	return ports
}
