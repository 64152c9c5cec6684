#!/usr/bin/env bash
# One night of one branch, for cron or any other scheduler: update, compare, bisect if it is worse, tell.
# It may be started twice or late, and killed: the next start goes on where it was.
#
#   17 2 * * *  /opt/bisect-train/nightly.sh /srv/trainer
#
# SLACK_URL and GITHUB_TOKEN come from a file that only this user can read, not from the crontab.
set -euo pipefail

repository=${1:?"usage: nightly.sh REPOSITORY"}
secrets=${BISECT_TRAIN_SECRETS:-/etc/bisect-train/secrets.env}
export BISECT_TRAIN_HOME=${BISECT_TRAIN_HOME:-/var/lib/bisect-train}

if [[ -r $secrets ]]; then
  set -a
  # shellcheck source=/dev/null
  source "$secrets"
  set +a
fi

cd "$repository"
status=0
bisect-train nightly run --branch main --fetch --recipe training.yaml --quiet \
  --tell env:SLACK_URL --json "$BISECT_TRAIN_HOME/night.json" || status=$?

# cron sends a mail when something is printed or when the status is not 0: a finding is told already, so it is not an error here
case $status in
  0 | 3 | 5) exit 0 ;;
  *) exit "$status" ;;
esac
