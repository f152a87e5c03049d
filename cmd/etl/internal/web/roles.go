package web

import (
	"net/http"
	"sync"
)

// Role is what who asks may do. Each one may do what those before it may.
type Role string

// The roles, weakest first.
const (
	Read    Role = "read"    // look, but not at records
	Operate Role = "operate" // look at records, and steer pipelines
	Admin   Role = "admin"   // change what runs, and from where on
)

// Includes tells whether who has the role may do what needs the other one.
func (r Role) Includes(needed Role) bool {
	rank := map[Role]int{Read: 1, Operate: 2, Admin: 3}
	return rank[r] > 0 && rank[needed] > 0 && rank[r] >= rank[needed]
}

// The paths of the API. Those below onePath are about one pipeline.
const (
	apiPath = "/api/v1"
	allPath = apiPath + "/pipelines"
	onePath = allPath + "/{name}"
)

// roles are the operations of the API with the role that each of them needs.
var roles = map[string]Role{
	"GET " + apiPath + "/daemon":               Read,
	"GET " + apiPath + "/stream":               Read,
	"GET " + apiPath + "/events":               Read,
	"GET " + apiPath + "/logs":                 Read,
	"POST " + apiPath + "/reload":              Operate,
	"POST " + apiPath + "/validate":            Admin, // a definition can name variables and files of the process
	"POST " + apiPath + "/plan":                Admin, // as validate
	"GET " + allPath:                           Read,
	"GET " + onePath:                           Read,
	"PUT " + onePath:                           Admin,
	"DELETE " + onePath:                        Admin,
	"GET " + onePath + "/definition":           Read,
	"GET " + onePath + "/graph":                Read,
	"GET " + onePath + "/flow":                 Read,
	"GET " + onePath + "/failures":             Read,
	"GET " + onePath + "/events":               Read,
	"GET " + onePath + "/logs":                 Read,
	"GET " + onePath + "/tap":                  Operate, // records are data
	"GET " + onePath + "/checkpoints":          Read,
	"GET " + onePath + "/checkpoints/{number}": Read,
	"POST " + onePath + "/checkpoints":         Operate,
	"GET " + onePath + "/savepoints":           Read,
	"POST " + onePath + "/savepoints":          Operate,
	"POST " + onePath + "/start":               Operate, // Admin where it moves offsets
	"POST " + onePath + "/pause":               Operate,
	"POST " + onePath + "/resume":              Operate,
	"POST " + onePath + "/restart":             Operate,
	"POST " + onePath + "/cancel":              Operate,
	"POST " + onePath + "/stop":                Operate,
	"POST " + onePath + "/skip":                Admin,
}

// RoleOf is the role that an operation needs, by its method and the pattern of its
// path, such as /api/v1/pipelines/{name}/stop; false where there is no such operation.
func RoleOf(method, pattern string) (Role, bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	r, ok := roles[method+" "+pattern]
	return r, ok
}

// patterns finds the operation that a request is for.
var patterns = sync.OnceValue(func() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern := range roles {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	return mux
})

// RoleFor is the role that a request needs; false where it is for no operation of the API.
func RoleFor(r *http.Request) (Role, bool) {
	_, pattern := patterns().Handler(r)
	role, ok := roles[pattern]
	return role, ok
}
