# The certificates of the TLS connections between PostgreSQL's servers and
# ZooKeeper's, for "sh -e certificates.sh": see ../security.md.  Write the names of
# your servers below.

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -days 3650 -subj "/CN=ZooKeeper CA" -keyout ca.key -out ca.crt

certificate()                   # NAME serverAuth|clientAuth
{
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
        -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
    printf '%s\n' "subjectAltName=DNS:$1" "extendedKeyUsage=$2" \
        "basicConstraints=CA:FALSE" >"$1.ext"
    openssl x509 -req -in "$1.csr" -days 365 -CA ca.crt -CAkey ca.key \
        -CAcreateserial -extfile "$1.ext" -out "$1.crt"
}

for host in zk1 zk2 zk3; do certificate $host.example.org serverAuth; done
for host in db1 db2; do certificate $host.example.org clientAuth; done

# the list of revoked certificates: none so far
printf '%s\n' '[ca]' 'default_ca = zookeeper' '[zookeeper]' \
    'certificate = ca.crt' 'private_key = ca.key' 'database = revoked.txt' \
    'default_md = sha256' 'default_crl_days = 3650' >ca.cnf
touch revoked.txt
openssl ca -config ca.cnf -gencrl -out ca.crl
