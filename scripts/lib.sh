# shellcheck shell=bash
# Shared by the scripts beside it, which source it: where things are, and the environment in which
# vLLM runs on a CPU. Changes nothing until one of its functions is called.

# Set by the caller before sourcing: the repository root.
: "${root:?scripts/lib.sh: root is not set}"
venv=$root/.venv

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$@"; exit 1; }

# Put the environment's commands first, and nothing of another environment.
# Bytecode is kept, whatever the caller's habit: setup leaves it to the first import, and without
# it every process of an engine would compile torch and vLLM anew.
use_venv() {
  unset PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE
  export VIRTUAL_ENV=$venv PATH=$venv/bin:$PATH
}

# What vLLM wants on a CPU. A value that the caller has set is kept.
use_vllm_environment() {
  export HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1}
  export VLLM_NO_USAGE_STATS=${VLLM_NO_USAGE_STATS:-1} DO_NOT_TRACK=${DO_NOT_TRACK:-1}
  export TOKENIZERS_PARALLELISM=${TOKENIZERS_PARALLELISM:-false}
  export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} # GiB
  preload_openmp
}

# vLLM's CPU worker binds its threads through Intel's OpenMP where that is loaded first. The
# loader splits LD_PRELOAD at blanks, so a path that has one cannot be named there.
preload_openmp() {
  local library=$venv/lib/libiomp5.so
  [ -f "$library" ] || return 0
  case $library in *[[:space:]:]*) return 0 ;; esac
  case ${LD_PRELOAD:-} in *libiomp* | *libgomp* | *libomp*) return 0 ;; esac
  export LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD}
}
