//go:build tools

// What is built of this module: Helm itself, as it comes.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
