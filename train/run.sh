#!/bin/bash
# Make the voice on one machine with two GPUs: speak, then train everything side by side, each part in its own process.
#
#   run.sh DATA OUT SECONDS          DATA has text.tsv and the vocabulary; returns at once; logs in OUT/*.log
#
# T3 has GPU A for itself once the tokenizer is trained; flow and vocoder share GPU B.
# Settings from the environment (defaults are those of the shipped voice, on two H200 and 32 cores):
#   GPU_A, GPU_B  device numbers          JOBS  speaking processes         PARTS  parts of the corpus
#   TOK_PARTS, VOC_PARTS  parts that these trainings hear
#   TOK_ARGS, VOC_ARGS, FLOW_ARGS, T3_ARGS  more arguments, e.g. --start
#   TOK_SECONDS   of tokenizer training   FLOW_END  seconds after the start at which the flow is finished
set -u
D=$1 O=$2 S=$3 T=$(cd "$(dirname "$0")" && pwd)
A=${GPU_A:-0} B=${GPU_B:-1} JOBS=${JOBS:-29} PARTS=${PARTS:-640} TOK=${TOK_PARTS:-40}
mkdir -p "$O"
END=$(($(date +%s) + S)) FLOW=$(($(date +%s) + ${FLOW_END:-900}))
bg() { log=$1; shift; setsid nohup env OMP_NUM_THREADS=4 PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore "$@" >>"$O/$log.log" 2>&1 </dev/null & }
cd "$T"
echo "$END" >"$O/end"
bg teacher env OMP_NUM_THREADS=1 nice python3 teacher.py --data "$D" --parts "$PARTS" --jobs "$JOBS" --twins "$TOK"
bg tok env CUDA_VISIBLE_DEVICES="$A" python3 train_tokenizer.py --data "$D" --out "$O" --train-parts "$TOK" --all-parts "$PARTS" --seconds "${TOK_SECONDS:-130}" ${TOK_ARGS:-}
bg voc env CUDA_VISIBLE_DEVICES="$B" python3 train_vocoder.py --data "$D" --out "$O" --parts "${VOC_PARTS:-40}" --until "$END" ${VOC_ARGS:-}
bg flow env CUDA_VISIBLE_DEVICES="$B" python3 train_flow.py --data "$D" --out "$O" --until "$FLOW" ${FLOW_ARGS:-}
bg t3 env CUDA_VISIBLE_DEVICES="$A" python3 train_t3.py --data "$D" --out "$O" --until "$END" ${T3_ARGS:-}
