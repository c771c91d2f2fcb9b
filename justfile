# Recipes only call the commands under hack/: `just` lists them.

[private]
default:
    @just --list

# A whole Kubernetes on this machine with kubeworkspaces in it (hack/up --help)
up *args:
    hack/up {{ args }}

# Ends what `up` started and leaves nothing of it
down *args:
    hack/down {{ args }}

# What runs, where its logs are, what to type next
status:
    hack/status

# Everything that CI runs, or the suites that are named: lint unit integration e2e soak long
test *args:
    hack/test {{ args }}

# A benchmark; without a name, lists them
bench *args:
    hack/bench {{ args }}

# Formatting, clippy, dependency edges, generated files
lint:
    hack/test lint

# Writes the generated files anew
gen:
    hack/gen

# Says whether the generated files are what the code makes
verify:
    hack/gen --check
